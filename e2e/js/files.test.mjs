// Owns what the JavaScript SDK does with files.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digest, make, randomBytes, sdk } from './sdk.mjs'

test('fifty mebibytes go up and come down the same', async (t) => {
  const sandbox = await make(t)
  const content = await randomBytes(50 * 1024 * 1024)
  await sandbox.files.write('/home/user/big', new Blob([content]))
  assert.equal((await sandbox.commands.run('sha256sum big')).stdout.split(' ')[0], await digest(content))
  const back = await sandbox.files.read('/home/user/big', { format: 'bytes' })
  assert.equal(await digest(back), await digest(content))
})

test('empty and small files survive in every format', async (t) => {
  const sandbox = await make(t)
  await sandbox.files.write('/home/user/empty', '')
  assert.equal(await sandbox.files.read('/home/user/empty'), '')
  assert.equal((await sandbox.files.read('/home/user/empty', { format: 'bytes' })).length, 0)
  await sandbox.files.write('relative/ümlaut', 'söme téxt')
  assert.equal(await sandbox.files.read('/home/user/relative/ümlaut'), 'söme téxt')
  const blob = await sandbox.files.read('/home/user/relative/ümlaut', { format: 'blob' })
  assert.equal(await blob.text(), 'söme téxt')
})

test('absolute and nested names of one upload keep their directories', async (t) => {
  const sandbox = await make(t)
  const files = [0, 1, 2].map((n) => ({ path: `/home/user/${n}/file-${n}.txt`, data: `content ${n}` }))
  const written = await sandbox.files.write(files)
  assert.deepEqual(written.map((entry) => entry.path), files.map((file) => file.path))
  assert.equal(await sandbox.files.read('/home/user/2/file-2.txt'), 'content 2')
})

test('directories are made, listed, moved and removed', async (t) => {
  const { files } = await make(t)
  assert.equal(await files.makeDir('/home/user/a/b'), true)
  assert.equal(await files.makeDir('/home/user/a/b'), false)
  await files.write('/home/user/a/one', '1')
  assert.deepEqual((await files.list('/home/user/a')).map((entry) => entry.name), ['b', 'one'])
  await files.rename('/home/user/a/one', '/home/user/a/b/two')
  assert.equal((await files.getInfo('/home/user/a/b/two')).size, 1)
  await files.remove('/home/user/a')
  assert.equal(await files.exists('/home/user/a'), false)
})

test('what is missing or wrong is an error of its kind', async (t) => {
  const { files } = await make(t)
  await assert.rejects(files.read('/home/user/missing'), sdk.NotFoundError)
  await assert.rejects(files.read('/home/user'), sdk.InvalidArgumentError)
  await assert.rejects(files.list('/home/user/missing'), sdk.NotFoundError)
})

test('metadata stays with a file', async (t) => {
  const { files } = await make(t)
  await files.write('/home/user/m', 'x', { metadata: { origin: 'test' } })
  assert.deepEqual((await files.getInfo('/home/user/m')).metadata, { origin: 'test' })
})

test('a signed URL needs nothing else and does not outlive its time', async (t) => {
  const sandbox = await make(t)
  await sandbox.files.write('/home/user/signed', 'content')
  const url = await sandbox.downloadUrl('/home/user/signed', { useSignatureExpiration: 60_000 })
  assert.equal(await (await fetch(url)).text(), 'content')
  const upload = await sandbox.uploadUrl('/home/user/uploaded')
  const body = new FormData()
  body.append('file', new Blob(['up']), '/home/user/uploaded')
  assert.equal((await fetch(upload, { method: 'POST', body })).status, 200)
  assert.equal(await sandbox.files.read('/home/user/uploaded'), 'up')
})
