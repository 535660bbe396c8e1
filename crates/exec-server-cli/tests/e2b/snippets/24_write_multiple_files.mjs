// prints: another file content
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create()

await sandbox.files.write([
  { path: 'path/to/a', data: 'file content' },
  { path: 'another/path/to/b', data: 'another file content' },
])
console.log(await sandbox.files.read('another/path/to/b'))

await sandbox.kill()
