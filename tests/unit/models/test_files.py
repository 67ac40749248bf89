"""Files are written whole, and what cannot be written is found out early."""

import os
from pathlib import Path

import pytest

from models.errors import BadOption
from models.files import require_folder, require_writable, write_whole


def test_a_file_appears_whole_with_its_folders(tmp_path):
    write_whole(tmp_path / "a" / "b", b"content")
    assert (tmp_path / "a" / "b").read_bytes() == b"content"
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "b"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(tmp_path / "pipe", b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_asking_makes_and_changes_nothing(tmp_path):
    require_writable("--json", tmp_path / "new" / "folder" / "file")
    require_folder("--out", tmp_path / "new" / "folder")
    (tmp_path / "there").write_text("kept")
    require_writable("--json", tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "kept"


@pytest.mark.parametrize("path", ["file/below", "file/far/below", "/proc/none/below"])
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(BadOption, match=f"--json must name a file that can be written; {path}: "):
        require_writable("--json", Path(path))
    with pytest.raises(BadOption, match=f"--out must name a folder that can be written to; {path}: "):
        require_folder("--out", Path(path))


@pytest.mark.parametrize(("mine", "theirs"), [("a", "a"), ("./a", "b/../a"), ("a/b", "a"), ("a", "a/b/c")])
def test_files_of_one_run_may_not_be_in_each_others_way(tmp_path, monkeypatch, mine, theirs):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadOption, match="--json must not be the file of --out, or a folder of it; got "):
        require_writable("--json", Path(mine), others={"--inputs": None, "--out": theirs})
    require_writable("--json", Path("c"), others={"--inputs": None, "--out": theirs})
