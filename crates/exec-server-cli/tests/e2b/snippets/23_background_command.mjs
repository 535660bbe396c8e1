// prints: hello
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create()

// Start the command in the background
const command = await sandbox.commands.run('echo hello; sleep 1; echo world', {
  background: true,
  onStdout: (data) => {
    console.log(data)
  },
})
await command.wait()

// Kill the command
await command.kill()

await sandbox.kill()
