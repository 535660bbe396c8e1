// Every snippet of docs/typescript.md is a program that compiles and runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const page = readFileSync(process.env["EXEC_SERVER_PAGE"]!, "utf8");
const snippets = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map((found) => found[1]!);

test("the page has snippets", () => assert(snippets.length >= 8));

test("every snippet compiles and runs", async () => {
  // Inside of the package, whose name is known there.
  const directory = mkdtempSync(join(__dirname, "snippets-"));
  try {
    snippets.forEach((snippet, number) => {
      const program = snippet.replaceAll("ws://127.0.0.1:7000", process.env["EXEC_SERVER_TEST_URL"]!);
      writeFileSync(join(directory, `snippet${number}.mts`), program);
    });
    const compilerOptions = { rootDir: ".", outDir: "." };
    const project = { extends: "../../tests/tsconfig.json", compilerOptions, include: ["."], exclude: [] };
    writeFileSync(join(directory, "tsconfig.json"), JSON.stringify(project));
    await run(process.env["EXEC_SERVER_TSC"]!, ["-p", directory]).catch((error) => assert.fail(error.stdout));
    for (const number of snippets.keys()) {
      const cwd = join(directory, `${number}`);
      mkdirSync(cwd);
      await run(process.execPath, [join(directory, `snippet${number}.mjs`)], { cwd, timeout: 100_000 });
    }
  } finally {
    rmSync(directory, { recursive: true });
  }
});
