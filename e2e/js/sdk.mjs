// Owns which version of the official SDK the suites use, and the sandboxes that a test leaves to it to end.

export const sdk = await import(process.env.COFFERDAM_E2E_SDK)
export const { Sandbox } = sdk

/** Makes a sandbox that is gone after the test. */
export async function make(test, opts = {}) {
  const sandbox = await Sandbox.create('base', { timeoutMs: 300_000, ...opts })
  test.after(() => sandbox.kill())
  return sandbox
}

/** Waits until `check` is true. */
export async function eventually(check, seconds = 10) {
  const deadline = Date.now() + seconds * 1000
  for (;;) {
    const answer = await check()
    if (answer) return answer
    if (Date.now() > deadline) throw new Error(`still ${answer} after ${seconds} s`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Bytes that do not compress. */
export async function randomBytes(count) {
  const { randomBytes } = await import('node:crypto')
  return randomBytes(count)
}

/** SHA-256 in hex. */
export async function digest(bytes) {
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(bytes).digest('hex')
}
