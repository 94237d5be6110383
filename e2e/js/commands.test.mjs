// Owns what the JavaScript SDK does with commands and terminals.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, eventually, make, sdk } from './sdk.mjs'

test('a real program is written, run and read', async (t) => {
  const sandbox = await make(t)
  await sandbox.files.write([
    { path: '/home/user/app/sum.mjs', data: 'export const sum = (xs) => xs.reduce((a, b) => a + b, 0)\n' },
    {
      path: '/home/user/app/sum.test.mjs',
      data: "import { sum } from './sum.mjs'\nif (sum([1, 2]) !== 3) process.exit(1)\nconsole.log('ok')\n",
    },
  ])
  const result = await sandbox.commands.run('node sum.test.mjs | tee result', { cwd: '/home/user/app' })
  assert.equal(result.stdout, 'ok\n')
  assert.equal(await sandbox.files.read('/home/user/app/result'), 'ok\n')
  const python = await sandbox.commands.run('python3 -c "print(6 * 7)"')
  assert.equal(python.stdout, '42\n')
})

test('an exit code is an error with the output', async (t) => {
  const sandbox = await make(t)
  await assert.rejects(sandbox.commands.run('echo out; echo err >&2; exit 42'), (error) => {
    assert.ok(error instanceof sdk.CommandExitError)
    assert.deepEqual([error.exitCode, error.stdout, error.stderr], [42, 'out\n', 'err\n'])
    return true
  })
})

test('streams are told apart and arrive as they come', async (t) => {
  const sandbox = await make(t)
  const seen = []
  await sandbox.commands.run('echo one; sleep 0.3; echo two >&2', {
    onStdout: (text) => void seen.push(['out', text]),
    onStderr: (text) => void seen.push(['err', text]),
  })
  assert.deepEqual(seen, [['out', 'one\n'], ['err', 'two\n']])
})

test('characters cut by a chunk arrive whole', async (t) => {
  const sandbox = await make(t)
  const text = 'é'.repeat(40_000) + '€'
  await sandbox.files.write('/home/user/text', text)
  assert.equal((await sandbox.commands.run('cat text')).stdout, text)
})

test('standard input is fed and closed', async (t) => {
  const sandbox = await make(t)
  const handle = await sandbox.commands.run('cat; echo closed', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'line\n')
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'line\nclosed\n')
})

test('a command is found again by pid from another client', async (t) => {
  const sandbox = await make(t)
  const handle = await sandbox.commands.run('while ! test -e go; do sleep 0.05; done; echo went', {
    background: true,
    timeoutMs: 0,
  })
  await handle.disconnect()
  const other = await Sandbox.connect(sandbox.sandboxId)
  assert.ok((await other.commands.list()).some((process) => process.pid === handle.pid))
  const again = await other.commands.connect(handle.pid)
  await other.files.write('/home/user/go', '')
  assert.equal((await again.wait()).stdout, 'went\n')
})

test('a killed command is gone and killing it again is false', async (t) => {
  const sandbox = await make(t)
  const handle = await sandbox.commands.run('sleep 1000', { background: true })
  assert.equal(await handle.kill(), true)
  await assert.rejects(handle.wait(), sdk.CommandExitError)
  assert.equal(await sandbox.commands.kill(handle.pid), false)
})

test('a timeout ends the command and everything it started, and keeps what was printed', async (t) => {
  const sandbox = await make(t)
  const seen = []
  const run = sandbox.commands.run("echo before; (setsid sleep 997.75 &); sleep 997.75", {
    timeoutMs: 1000,
    onStdout: (text) => void seen.push(text),
  })
  await assert.rejects(run, sdk.TimeoutError)
  assert.deepEqual(seen, ['before\n'])
  const look = "pgrep -f '[s]leep 997.75' || true"
  await eventually(async () => (await sandbox.commands.run(look, { user: 'root' })).stdout === '', 2)
})

test('killing the sandbox says so to a running command', async (t) => {
  const sandbox = await make(t)
  const handle = await sandbox.commands.run('sleep 60', { background: true })
  await sandbox.kill()
  await assert.rejects(handle.wait(), /sandbox was killed or reached its end of life/)
})

test('a terminal has the size it was given and gets', async (t) => {
  const sandbox = await make(t)
  let output = ''
  const terminal = await sandbox.pty.create({
    cols: 81,
    rows: 25,
    onData: (data) => void (output += new TextDecoder().decode(data)),
  })
  const type = (text) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await type('stty size; echo $TERM\n')
  await eventually(() => output.includes('25 81') && output.includes('xterm-256color'))
  await sandbox.pty.resize(terminal.pid, { cols: 120, rows: 40 })
  await type('stty size; exit 0\n')
  await terminal.wait()
  assert.match(output, /40 120/)
})

test('the environment is layered and users are whom the caller names', async (t) => {
  const sandbox = await make(t, { envs: { OUTER: 'sandbox', BOTH: 'sandbox' } })
  const shown = await sandbox.commands.run('echo $OUTER $BOTH $USER $E2B_SANDBOX_ID', { envs: { BOTH: 'command' } })
  assert.equal(shown.stdout, `sandbox command user ${sandbox.sandboxId}\n`)
  assert.equal((await sandbox.commands.run('id -u', { user: 'root' })).stdout, '0\n')
})
