"""What everything else stands on: the environment's seams, ids, error codes, options. Imports nothing of ours."""
