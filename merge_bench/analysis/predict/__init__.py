"""What a merge would do on a cluster that was not measured, from measurements of smaller ones.

campaigns → `gather` (with `samples`, `probed_links`) → `basis` (with `fit`, `whatif`) → `model` → `document`.
`docs/predict.md` has the formulas.
"""
