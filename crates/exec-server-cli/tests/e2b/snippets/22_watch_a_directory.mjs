// prints: wrote to file my-file
import { Sandbox, FilesystemEventType } from 'e2b'

const sandbox = await Sandbox.create()
const dirname = '/home/user'

// Start watching directory for changes
const written = new Promise((resolve) => {
  sandbox.files.watchDir(dirname, async (event) => {
    console.log(event)
    if (event.type === FilesystemEventType.WRITE) {
      console.log(`wrote to file ${event.name}`)
      resolve()
    }
  }).then(() => sandbox.files.write(`${dirname}/my-file`, 'hello')) // Trigger file write event
})
await written

await sandbox.kill()
