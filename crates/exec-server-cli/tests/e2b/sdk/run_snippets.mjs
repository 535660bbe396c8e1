// Runs snippets as they are, and looks for the lines that each says it prints.

import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { format } from 'node:util'

const folder = process.argv[2]
let passed = true
const log = console.log
for (const name of readdirSync(folder).filter((name) => name.endsWith('.mjs')).sort()) {
  let printed = ''
  console.log = (...words) => { printed += `${format(...words)}\n` }
  try {
    await import(pathToFileURL(join(folder, name)))
    for (const line of readFileSync(join(folder, name), 'utf8').split('\n')) {
      if (line.startsWith('// prints: ') && !printed.includes(line.slice('// prints: '.length))) throw new Error(printed)
    }
    log(`ok ${name}`)
  } catch (error) {
    passed = false
    log(`FAILED ${name}`)
    console.error(error)
  }
}
process.exit(passed ? 0 : 1)
