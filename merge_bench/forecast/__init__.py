"""What a merge would do on a cluster that was not measured, from measurements of smaller ones.

campaigns → `gather` → `fit` → `model` → `document` → `view`.
`docs/predict.md` has the formulas.
"""
