"""What a merge would do on a cluster that was not measured, from measurements of smaller ones.

campaigns → `gather` → `fit` (with `whatif`) → `model` → `document`.
`docs/predict.md` has the formulas.
"""
