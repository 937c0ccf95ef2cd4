"""Any command as a campaign: launches of a program under several configs, with its metrics and checks.

`options.py`: what a person can ask for; `metrics.py`, `presets.py`: numbers in a command's output; `placeholders.py`:
its words under a config; `run_command.py` and `warden.py`: one launch, of which nothing is left; `command_campaign.py`:
the plan and the campaign.
"""
