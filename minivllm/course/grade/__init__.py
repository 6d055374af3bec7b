"""Grading: what a submission's parts are worth, found out without trusting them.

A run has three kinds of processes. The one that was started hands each notebook to a *marker*, a process
of its own, which reads the notebook, runs the contracts and counts points. The student's code runs in
neither: a *nursery* that has never seen a contract forks a confined *part process* for each exercise, and
the marker talks to it over a socket. Inputs go in and answers come out; expected values, points and seeds
stay with the marker. Read `values.py` (what crosses), `rpc.py` (how), `confine.py` (what is shut off).
"""
