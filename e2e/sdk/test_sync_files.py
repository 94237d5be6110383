"""Owns what the synchronous Python SDK does with files: every form of reading, writing and looking."""

import hashlib
import io
import os
import time
import urllib.error
import urllib.request

import pytest
from e2b import (
    AuthenticationException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    Sandbox,
)


def fetch(url, data=None, **headers):
    """What somebody without an SDK gets for a URL: status and body."""
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Zeroes(io.RawIOBase):
    """A file of zeroes that needs no memory."""

    def __init__(self, mebibytes):
        super().__init__()
        self.left = mebibytes * 1024 * 1024

    def readable(self):
        return True

    def readinto(self, buffer):
        count = min(len(buffer), self.left)
        buffer[:count] = bytes(count)
        self.left -= count
        return count


def test_fifty_mebibytes_go_up_and_come_down_the_same(sandbox):
    content = os.urandom(50 * 1024 * 1024)
    digest = hashlib.sha256(content).hexdigest()
    sandbox.files.write("/home/user/big", content)
    assert sandbox.commands.run("sha256sum big").stdout.split()[0] == digest
    assert hashlib.sha256(sandbox.files.read("/home/user/big", format="bytes")).hexdigest() == digest


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1_048_577])
def test_every_size_around_a_border_survives(sandbox, size):
    content = os.urandom(size)
    sandbox.files.write("/home/user/sized", content)
    assert bytes(sandbox.files.read("/home/user/sized", format="bytes")) == content


def test_a_stream_is_read_in_pieces(sandbox):
    sandbox.commands.run("seq 1 300000 > numbers")
    text = b"".join(sandbox.files.read("/home/user/numbers", format="stream"))
    assert text.endswith(b"\n300000\n") and text.count(b"\n") == 300_000


@pytest.mark.parametrize(
    "options", [{}, {"gzip": True}, {"use_octet_stream": True}, {"gzip": True, "use_octet_stream": True}]
)
def test_every_form_of_an_upload_writes_the_same(sandbox, options):
    sandbox.files.write("form.txt", "söme téxt\n" * 1000, **options)
    assert sandbox.files.read("/home/user/form.txt") == "söme téxt\n" * 1000


def test_many_files_are_written_at_once_with_their_directories(sandbox):
    entries = [{"path": f"/home/user/deep/{n}/file-{n}", "data": f"content {n}"} for n in range(20)]
    assert [entry.name for entry in sandbox.files.write_files(entries)] == [f"file-{n}" for n in range(20)]
    assert sandbox.files.read("/home/user/deep/7/file-7") == "content 7"
    assert sandbox.commands.run("stat -c '%U %a' deep deep/7 deep/7/file-7").stdout == "user 755\nuser 755\nuser 644\n"


def test_files_belong_to_the_user_who_is_named(sandbox):
    sandbox.files.write("/root/secret", "x", user="root")
    assert sandbox.commands.run("stat -c %U /root/secret", user="root").stdout == "root\n"
    info = sandbox.files.get_info("/root/secret", user="root")
    assert (info.owner, info.group, info.size) == ("root", "root", 1)


def test_directories_are_made_listed_moved_and_removed(sandbox):
    assert sandbox.files.make_dir("/home/user/a/b/c") is True
    assert sandbox.files.make_dir("/home/user/a/b/c") is False
    sandbox.files.write("/home/user/a/one", "1")
    sandbox.files.write("/home/user/a/b/two", "2")
    names = [entry.path for entry in sandbox.files.list("/home/user/a", depth=3)]
    assert names == ["/home/user/a/b", "/home/user/a/b/c", "/home/user/a/b/two", "/home/user/a/one"]
    assert [entry.name for entry in sandbox.files.list("/home/user/a")] == ["b", "one"]
    moved = sandbox.files.rename("/home/user/a/one", "/home/user/new/place/one")
    assert moved.path == "/home/user/new/place/one"
    assert not sandbox.files.exists("/home/user/a/one") and sandbox.files.exists(moved.path)
    sandbox.files.remove("/home/user/a")
    assert not sandbox.files.exists("/home/user/a")
    sandbox.files.remove("/home/user/a")


def test_an_entry_says_what_it_is(sandbox):
    sandbox.commands.run("echo hi > f; chmod 640 f; ln -s f link; ln -s nowhere broken; mkdir d")
    info = sandbox.files.get_info("/home/user/f")
    assert (info.name, info.path, info.size, info.mode, info.permissions) == (
        "f",
        "/home/user/f",
        3,
        0o640,
        "-rw-r-----",
    )
    assert (info.owner, info.group) == ("user", "user")
    assert sandbox.files.get_info("/home/user/link").symlink_target == "/home/user/f"
    assert sandbox.files.get_info("/home/user/d").type.value == "dir"
    assert sandbox.files.get_info("/home/user/broken").name == "broken"


def test_metadata_stays_with_a_file_and_is_replaced_by_the_next_write(sandbox):
    sandbox.files.write("/home/user/m", "x", metadata={"origin": "test", "n": "1"})
    assert sandbox.files.get_info("/home/user/m").metadata == {"origin": "test", "n": "1"}
    sandbox.files.rename("/home/user/m", "/home/user/m2")
    assert sandbox.files.get_info("/home/user/m2").metadata == {"origin": "test", "n": "1"}
    sandbox.files.write("/home/user/m2", "y")
    assert not sandbox.files.get_info("/home/user/m2").metadata


def test_paths_are_of_the_home_unless_absolute(sandbox):
    sandbox.files.write("relative/file", "1")
    assert sandbox.files.read("/home/user/relative/file") == "1"
    assert sandbox.files.read("~/relative/file") == "1"
    assert sandbox.files.read("relative/../relative/file") == "1"


def test_what_is_missing_or_wrong_is_an_error_of_its_kind(sandbox):
    with pytest.raises(NotFoundException):
        sandbox.files.read("/home/user/missing")
    with pytest.raises(NotFoundException):
        sandbox.files.list("/home/user/missing")
    with pytest.raises(NotFoundException):
        sandbox.files.rename("/home/user/missing", "/home/user/other")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("/home/user")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.write("/home/user", "x")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list("/etc/hostname")
    with pytest.raises(AuthenticationException):
        sandbox.files.read("/etc/hostname", user="nobody-of-that-name")


def test_a_full_disk_is_said_so_and_room_helps(sandbox):
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/home/user/huge", io.BufferedReader(Zeroes(1200), 1 << 20))
    sandbox.files.remove("/home/user/huge")
    sandbox.files.write("/home/user/small", "fits")
    assert sandbox.files.read("/home/user/small") == "fits"


def test_a_signed_url_needs_nothing_else(sandbox):
    sandbox.files.write("/home/user/signed", "content")
    assert fetch(sandbox.download_url("/home/user/signed")) == (200, b"content")
    assert fetch(sandbox.download_url("/home/user/signed", user="user", use_signature_expiration=60)) == (
        200,
        b"content",
    )
    url = sandbox.upload_url("/home/user/uploaded")
    assert fetch(url, data=b"up", **{"Content-Type": "application/octet-stream"})[0] == 200
    assert sandbox.files.read("/home/user/uploaded") == "up"


def test_a_signed_url_is_for_one_path_one_operation_and_its_time(sandbox):
    sandbox.files.write("/home/user/signed", "content")
    url = sandbox.download_url("/home/user/signed", user="user", use_signature_expiration=1)
    routed = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    assert fetch(url.replace("signed&", "other&").replace("signed?", "other?"), **routed)[0] == 401
    assert fetch(url, data=b"x", **routed)[0] == 401
    time.sleep(2.1)
    assert fetch(url, **routed) == (401, b'{"code":401,"message":"signature is already expired"}')


def test_a_sandbox_of_another_client_reads_the_same_files(sandbox):
    sandbox.files.write("/home/user/shared", "once")
    assert Sandbox.connect(sandbox.sandbox_id).files.read("/home/user/shared") == "once"
