"""Owns what the asynchronous Python SDK does: the same work as the synchronous one, and many things at once."""

import asyncio
import hashlib
import os
import uuid

import pytest
from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, SandboxQuery, TimeoutException


async def test_a_real_project_is_written_tested_and_read(async_sandbox, project):
    root = "/home/user/bank-project"
    await async_sandbox.files.write_files([{"path": f"{root}/{path}", "data": text} for path, text in project.items()])
    result = await async_sandbox.commands.run("python3 report.py", cwd=root)
    assert "FAILED (failures=1)" in result.stderr
    assert "test_wrong" in await async_sandbox.files.read(f"{root}/report.json")


async def test_fifty_mebibytes_go_up_and_come_down_the_same(async_sandbox):
    content = os.urandom(50 * 1024 * 1024)
    await async_sandbox.files.write("/home/user/big", content)
    back = await async_sandbox.files.read("/home/user/big", format="bytes")
    assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()


async def test_twenty_commands_at_once_do_not_mix(async_sandbox):
    async def one(number):
        result = await async_sandbox.commands.run(f"for i in 1 2 3; do echo {number}-$i; sleep 0.05; done")
        return result.stdout == f"{number}-1\n{number}-2\n{number}-3\n"

    assert all(await asyncio.gather(*(one(number) for number in range(20))))


async def test_ten_sandboxes_at_once_are_ten():
    made = await asyncio.gather(*(AsyncSandbox.create(timeout=120) for _ in range(10)))
    try:
        assert len({one.sandbox_id for one in made}) == 10
        results = await asyncio.gather(*(one.commands.run("echo $E2B_SANDBOX_ID") for one in made))
        assert [result.stdout.strip() for result in results] == [one.sandbox_id for one in made]
    finally:
        await asyncio.gather(*(one.kill() for one in made))


async def test_standard_input_is_fed_and_closed(async_sandbox):
    handle = await async_sandbox.commands.run("wc -c", background=True, stdin=True)
    for _ in range(4):
        await async_sandbox.commands.send_stdin(handle.pid, "y" * 50_000)
    await async_sandbox.commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout.strip() == "200000"


async def test_an_exit_code_is_an_exception(async_sandbox):
    with pytest.raises(CommandExitException) as caught:
        await async_sandbox.commands.run("echo out; exit 9")
    assert (caught.value.exit_code, caught.value.stdout) == (9, "out\n")


async def test_a_timeout_keeps_what_was_printed(async_sandbox):
    seen = []
    with pytest.raises(TimeoutException):
        await async_sandbox.commands.run("echo before; sleep 999", timeout=1, on_stdout=seen.append)
    assert seen == ["before\n"]


async def test_a_command_is_found_again_by_pid(async_sandbox):
    handle = await async_sandbox.commands.run("sleep 1; echo late", background=True)
    await handle.disconnect()
    again = await (await AsyncSandbox.connect(async_sandbox.sandbox_id)).commands.connect(handle.pid)
    assert (await again.wait()).stdout == "late\n"


async def test_killing_the_sandbox_says_so_to_a_running_command(async_sandbox):
    handle = await async_sandbox.commands.run("sleep 60", background=True)
    await async_sandbox.kill()
    with pytest.raises(TimeoutException, match="sandbox was killed or reached its end of life"):
        await handle.wait()


async def test_a_terminal_answers_and_is_resized(async_sandbox):
    output = bytearray()
    terminal = await async_sandbox.pty.create(size=PtySize(rows=25, cols=81), on_data=output.extend)
    await async_sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    await async_sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 0\n")
    await terminal.wait()
    assert "40 120" in output.decode(errors="replace")


async def test_files_are_looked_at(async_sandbox):
    files = async_sandbox.files
    assert await files.make_dir("/home/user/d") is True
    await files.write("/home/user/d/f", "x", metadata={"k": "v"})
    assert (await files.get_info("/home/user/d/f")).metadata == {"k": "v"}
    assert [entry.name for entry in await files.list("/home/user/d")] == ["f"]
    await files.rename("/home/user/d/f", "/home/user/d/g")
    assert await files.exists("/home/user/d/g") and not await files.exists("/home/user/d/f")
    await files.remove("/home/user/d")
    with pytest.raises(NotFoundException):
        await files.read("/home/user/d/g")


async def test_a_list_is_filtered_and_paged():
    group = uuid.uuid4().hex
    made = [await AsyncSandbox.create(timeout=120, metadata={"group": group}) for _ in range(3)]
    try:
        pages = AsyncSandbox.list(query=SandboxQuery(metadata={"group": group}), limit=2)
        rows = []
        while pages.has_next:
            rows += await pages.next_items()
        assert [row.sandbox_id for row in rows] == [one.sandbox_id for one in reversed(made)]
    finally:
        await asyncio.gather(*(one.kill() for one in made))


async def test_connecting_never_shortens(async_sandbox):
    before = (await async_sandbox.get_info()).end_at
    again = await AsyncSandbox.connect(async_sandbox.sandbox_id, timeout=10)
    assert (await again.get_info()).end_at == before
    assert await again.is_running()
    assert await again.kill() is True
    assert not await async_sandbox.is_running()
