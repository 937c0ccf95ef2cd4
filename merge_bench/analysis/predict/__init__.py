"""What a merge would do on a cluster that is not there yet, from what was measured on smaller ones.

campaigns → `samples` → `fit` (with `probed`, `whatif`) → `model` → `document`. `docs/predict.md` has the formulas.
"""
