"""What is kept on disk outlives kernels, also two that write at once."""

import json
import threading

from minivllm.course.workspace import Workspace


def test_two_kernels_that_note_at_once_both_keep_their_note(tmp_path):
    has_read, other_is_done = threading.Event(), threading.Event()

    class Slow(Workspace):
        """Reads the notes, then dawdles until the other has had every chance to write."""

        def _notes(self):
            notes = super()._notes()
            has_read.set()
            other_is_done.wait(0.5)
            return notes

    def note_the_second():
        has_read.wait(10)
        Workspace(tmp_path).note("checks", "2.2", "second")
        other_is_done.set()

    other = threading.Thread(target=note_the_second)
    other.start()
    Slow(tmp_path).note("checks", "2.1", "first")
    other.join()
    assert Workspace(tmp_path).noted("checks", "2.1") == "first"
    assert Workspace(tmp_path).noted("checks", "2.2") == "second"


def test_a_note_file_that_was_cut_off_is_begun_anew(tmp_path):
    (tmp_path / "progress.json").write_text('{"checks": {"2.')
    workspace = Workspace(tmp_path)
    assert workspace.noted("checks", "2.1") is None
    workspace.note("predictions", "2.1", 7.5)
    assert json.loads((tmp_path / "progress.json").read_text()) == {"predictions": {"2.1": 7.5}}
