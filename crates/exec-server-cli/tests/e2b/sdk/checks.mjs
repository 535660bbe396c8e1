// The JavaScript SDK: commands, terminals, files, watches, and sandboxes by the API. Written from E2B's documentation.
// In debug mode (E2B_DEBUG=true) all checks share the one sandbox there is, each with a folder of its own.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import {
  CommandExitError,
  FileType,
  FilesystemEventType,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  SandboxError,
  TimeoutError,
} from 'e2b'

const debug = process.env.E2B_DEBUG === 'true'
const folder = () => `check-${randomUUID().slice(0, 8)}`
const text = (bytes) => Buffer.concat(bytes).toString()

// A guard against hanging, and no measurement.
async function until(condition) {
  const deadline = Date.now() + 60_000
  while (!condition()) {
    assert(Date.now() < deadline, 'it did not happen')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const checks = {
  async 'commands have both streams and an exit code'(sandbox) {
    const out = []
    const result = await sandbox.commands.run('echo a; echo b >&2', { onStdout: (data) => out.push(data) })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode, out.join('')], ['a\n', 'b\n', 0, 'a\n'])
    await assert.rejects(sandbox.commands.run('exit 9'), (error) => error instanceof CommandExitError && error.exitCode === 9)
  },

  async 'commands have a directory and variables'(sandbox) {
    const result = await sandbox.commands.run('pwd; echo $FOO', { cwd: '/tmp', envs: { FOO: 'bar' } })
    assert.equal(result.stdout, '/tmp\nbar\n')
    await assert.rejects(sandbox.commands.run('pwd', { cwd: '/no/such' }), InvalidArgumentError)
  },

  async 'a command whose time is over is ended'(sandbox) {
    await assert.rejects(sandbox.commands.run('sleep 3600', { timeoutMs: 1000 }), TimeoutError)
  },

  async 'a background command is listed, killed and gone'(sandbox) {
    const handle = await sandbox.commands.run('sleep 5432', { background: true })
    assert((await sandbox.commands.list()).some((process) => process.pid === handle.pid))
    assert.equal(await handle.kill(), true)
    await assert.rejects(handle.wait(), CommandExitError)
    assert.equal(await sandbox.commands.kill(handle.pid), false)
  },

  async 'connecting replays everything'(sandbox) {
    const handle = await sandbox.commands.run('echo first; read line; echo $line', { background: true, stdin: true })
    await until(() => handle.stdout.includes('first'))
    await handle.disconnect()
    const again = await sandbox.commands.connect(handle.pid)
    await sandbox.commands.sendStdin(handle.pid, 'second\n')
    assert.equal((await again.wait()).stdout, 'first\nsecond\n')
    await assert.rejects(sandbox.commands.connect(99999999), NotFoundError)
  },

  async 'stdin is written and closed'(sandbox) {
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    await handle.sendStdin('one\n')
    await handle.closeStdin()
    assert.equal((await handle.wait()).stdout, 'one\n')
  },

  async 'much output is whole'(sandbox) {
    const result = await sandbox.commands.run('seq 1 100000')
    assert.equal(result.stdout, Array.from({ length: 100000 }, (_, index) => `${index + 1}\n`).join(''))
  },

  async 'a terminal is used and resized'(sandbox) {
    const output = []
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => output.push(data), envs: { A: 'b' } })
    const type = (line) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(line))
    // At its prompt bash reads the size and writes it back: a resize in between would be undone. `read` leaves it alone.
    await type('echo $A$((40+2)); read; stty size; exit\n')
    await until(() => text(output).includes('b42'))
    await sandbox.pty.resize(terminal.pid, { cols: 111, rows: 33 })
    await type('\n')
    await terminal.wait()
    assert(text(output).includes('33 111'), text(output))
  },

  async 'a terminal is connected to and killed'(sandbox) {
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
    await terminal.disconnect()
    const output = []
    await sandbox.pty.connect(terminal.pid, { onData: (data) => output.push(data), timeoutMs: 0 })
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6*7))00\n'))
    await until(() => text(output).includes('4200'))
    assert.equal(await sandbox.pty.kill(terminal.pid), true)
    assert.equal(await sandbox.pty.kill(terminal.pid), false)
  },

  async 'files are written and read in every format'(sandbox, home) {
    const info = await sandbox.files.write(`${home}/a/b.txt`, 'text äöü')
    assert.equal(info.name, 'b.txt')
    assert.equal(await sandbox.files.read(info.path), 'text äöü')
    assert.equal(Buffer.from(await sandbox.files.read(info.path, { format: 'bytes' })).toString(), 'text äöü')
    assert.equal(await (await sandbox.files.read(info.path, { format: 'blob' })).text(), 'text äöü')
    const pieces = []
    for await (const piece of await sandbox.files.read(info.path, { format: 'stream' })) pieces.push(piece)
    assert.equal(text(pieces), 'text äöü')
    await sandbox.files.write(info.path, new Blob(['blob']))
    await sandbox.files.write(`${home}/buffer`, new TextEncoder().encode('buffer').buffer)
    await sandbox.files.write(`${home}/stream`, new Blob(['stream']).stream())
    assert.equal(await sandbox.files.read(info.path), 'blob')
    assert.equal(await sandbox.files.read(`${home}/buffer`), 'buffer')
    assert.equal(await sandbox.files.read(`${home}/stream`), 'stream')
  },

  async 'files are compressed on their way'(sandbox, home) {
    const content = 'line\n'.repeat(50000)
    await sandbox.files.write(`${home}/zip`, content, { gzip: true })
    assert.equal(await sandbox.files.read(`${home}/zip`, { gzip: true }), content)
  },

  async 'several files are written at once'(sandbox, home) {
    const files = [1, 2, 3].map((number) => ({ path: `${home}/${number} ä`, data: `${number}` }))
    const infos = await sandbox.files.write(files)
    assert.deepEqual(infos.map((info) => info.name), ['1 ä', '2 ä', '3 ä'])
    assert.equal(await sandbox.files.read(files[2].path), '3')
  },

  async 'names are listed, looked at, renamed and removed'(sandbox, home) {
    await sandbox.files.write(`${home}/a/b`, '123')
    assert.equal(await sandbox.files.makeDir(`${home}/a`), false)
    assert.equal(await sandbox.files.makeDir(`${home}/c/d`), true)
    const listed = await sandbox.files.list(home, { depth: 2 })
    assert.deepEqual(listed.map((entry) => [entry.name, entry.type]), [
      ['a', FileType.DIR], ['b', FileType.FILE], ['c', FileType.DIR], ['d', FileType.DIR],
    ])
    await sandbox.commands.run(`chmod 604 ${home}/a/b && ln -s a/b ${home}/link`)
    const info = await sandbox.files.getInfo(`${home}/a/b`)
    assert.deepEqual([info.size, info.mode, info.permissions], [3, 0o604, '-rw----r--'])
    const link = await sandbox.files.getInfo(`${home}/link`)
    assert.deepEqual([link.type, link.symlinkTarget], [FileType.SYMLINK, info.path])
    await sandbox.files.rename(`${home}/a/b`, `${home}/e`)
    assert.equal(await sandbox.files.exists(`${home}/a/b`), false)
    await sandbox.files.remove(`${home}/e`)
    await assert.rejects(sandbox.files.read(`${home}/e`), NotFoundError)
    await assert.rejects(sandbox.files.list(`${home}/nothing`), NotFoundError)
  },

  async 'a watch tells what happens'(sandbox, home) {
    await sandbox.files.makeDir(`${home}/deep`)
    const seen = []
    const has = (name, type) => () => seen.some((event) => event.name === name && event.type === type)
    const handle = await sandbox.files.watchDir(home, (event) => seen.push(event), { recursive: true })
    await sandbox.files.write(`${home}/deep/f`, 'x')
    await until(has('deep/f', FilesystemEventType.WRITE))
    assert(has('deep/f', FilesystemEventType.CREATE)())
    await sandbox.files.remove(`${home}/deep/f`)
    await until(has('deep/f', FilesystemEventType.REMOVE))
    await handle.stop()
  },

  async 'a sandbox says that it runs'(sandbox) {
    assert.equal(await sandbox.isRunning(), true)
  },

  async 'api: sandboxes are made, found, listed and killed'(sandbox, home) {
    const other = await Sandbox.create({ metadata: { who: home }, envs: { A: '1' }, timeoutMs: 600_000 })
    assert.equal((await other.commands.run('echo $A')).stdout, '1\n')
    const paginator = Sandbox.list({ query: { metadata: { who: home } } })
    assert.deepEqual((await paginator.nextItems()).map((item) => item.sandboxId), [other.sandboxId])
    const again = await Sandbox.connect(other.sandboxId)
    await again.files.write('x', 'y')
    assert.equal(await other.files.read('x'), 'y')
    assert.equal((await other.getInfo()).metadata.who, home)
    assert((await other.getMetrics())[0].cpuCount >= 1)
    assert.equal(await other.kill(), true)
    assert.equal(await other.isRunning(), false)
    assert.equal(await Sandbox.kill(other.sandboxId), false)
    await assert.rejects(other.commands.run('true'), SandboxError)
  },

  async 'api: signed URLs work without headers'(sandbox) {
    await sandbox.files.write('signed file', 'content')
    const url = await sandbox.downloadUrl('signed file', { useSignatureExpiration: 600_000 })
    assert.equal(await (await fetch(url)).text(), 'content')
    assert.equal((await fetch(url.replace('signature=v1_', 'signature=v1_x'))).status, 401)
    const form = new FormData()
    form.append('file', new Blob(['uploaded']), 'up')
    const uploaded = await fetch(await sandbox.uploadUrl('up'), { method: 'POST', body: form })
    assert.equal(uploaded.status, 200)
    assert.equal(await sandbox.files.read('up'), 'uploaded')
  },

  async 'api: a time-out ends a sandbox'() {
    const short = await Sandbox.create()
    await short.setTimeout(1000)
    let running = true
    void (async () => { while (running) { running = await short.isRunning() } })()
    await until(() => !running)
  },

  async 'api: what is not served is refused in words'(sandbox) {
    await assert.rejects(sandbox.pause(), /pause/)
    await assert.rejects(Sandbox.create('no-such-template'), /template/)
  },
}

let passed = true
const only = process.argv.slice(2)
for (const [name, check] of Object.entries(checks)) {
  if ((debug && name.startsWith('api:')) || (only.length > 0 && !only.includes(name))) continue
  let sandbox
  try {
    sandbox = await Sandbox.create({ timeoutMs: 600_000 })
    await check(sandbox, folder())
    console.log(`ok ${name}`)
  } catch (error) {
    passed = false
    console.log(`FAILED ${name}`)
    console.error(error)
  } finally {
    if (sandbox && !debug) await sandbox.kill()
  }
}
process.exit(passed ? 0 : 1)
