"""What each part must do, written once and run on minivllm's part, the solution's and the reader's.

A contract is a module with `rules`: small named functions that use a part only through its interface,
by calling it with numbers and tensors and looking at what comes back. A rule never looks at memory
layout, at helper names, or at a part's source. Each gets the part (a class or a function) and a seeded
`random.Random`, so a hard-coded answer fails; each makes its own fresh object of the class.
"""
