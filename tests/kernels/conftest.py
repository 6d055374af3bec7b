"""Kernels are tested in Triton's interpreter, which must be chosen before triton is imported: so these
tests run in a process of their own (tests/kernels/test_in_interpreter.py), and are collected only there."""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted_*.py"]
