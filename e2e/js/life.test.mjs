// Owns the life of a sandbox as the JavaScript SDK sees it.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, make, sdk } from './sdk.mjs'

async function every(paginator) {
  const rows = []
  while (paginator.hasNext) rows.push(...(await paginator.nextItems()))
  return rows
}

test('a sandbox is what it was asked to be, and killing it twice is false', async (t) => {
  const sandbox = await make(t, { metadata: { who: 'me' }, timeoutMs: 120_000 })
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.deepEqual(info.metadata, { who: 'me' })
  assert.equal(await sandbox.isRunning(), true)
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await sandbox.isRunning(), false)
})

test('connecting never shortens', async (t) => {
  const sandbox = await make(t)
  const before = (await sandbox.getInfo()).endAt
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
  assert.deepEqual((await again.getInfo()).endAt, before)
})

test('a timeout that passes ends the sandbox within a second', async (t) => {
  const sandbox = await make(t)
  await sandbox.setTimeout(2000)
  await new Promise((resolve) => setTimeout(resolve, 3000))
  assert.equal(await sandbox.isRunning(), false)
})

test('filters and pages find exactly the ones meant', async (t) => {
  const group = `${process.pid}-${Date.now()}`
  const made = []
  for (const n of [0, 1, 2]) made.push(await make(t, { metadata: { group, n: String(n), 'odd &=%': 'a b+c' } }))
  const rows = await every(Sandbox.list({ query: { metadata: { group } }, limit: 2 }))
  assert.deepEqual(rows.map((row) => row.sandboxId), made.map((one) => one.sandboxId).reverse())
  const one = await every(Sandbox.list({ query: { metadata: { group, n: '1', 'odd &=%': 'a b+c' } } }))
  assert.deepEqual(one.map((row) => row.sandboxId), [made[1].sandboxId])
})

test('what does not exist or is not allowed is said so', async () => {
  await assert.rejects(Sandbox.connect('inosuchsandboxatall00'), sdk.NotFoundError)
  await assert.rejects(Sandbox.create('no-such-template'), /not found/)
  await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), sdk.AuthenticationError)
  assert.equal(await Sandbox.kill('inosuchsandboxatall00'), false)
})
