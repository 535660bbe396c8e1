//! The npm package as people get it: unpacked where Node looks for packages, on a system with Node, without compiler, Rust and
//! network; then a few lines of JavaScript, on that system and on a second one behind ssh.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::in_root;
use super::roots::{System, fresh_root};
use super::wheel::{FAR, PREPARE};

/// Node 18, the oldest that the package is for, and ssh as a client.
const NEAR: System =
    System { name: "bookworm-node", suite: "bookworm", glibc: "2.36", arguments: &["--include=nodejs,openssh-client"] };

/// Debian's npm would bring a compiler. What npm does beyond this is to link the command.
const INSTALL: &str = r#"
mkdir -p /root/app/node_modules/exec-server
tar -xzf /shipped/*.tgz --strip-components=1 -C /root/app/node_modules/exec-server
"#;

const USE: &str = r#"
cd /root/app
node_modules/exec-server/bin/exec-server --version
cp /shipped/first.mjs .
node first.mjs
"#;

/// What somebody would write first.
const FIRST: &str = r#"
import assert from "node:assert/strict";
import { connect, local } from "exec-server";

const here = await local();
console.log("here:", (await here.run("cat /etc/debian_version", { check: true })).stdout.trim());
await here.close();
const there = await connect("ssh://root@127.0.0.1:2222");
console.log("there:", (await there.run("cat /etc/debian_version", { check: true })).stdout.trim());
const counting = await there.spawn("seq 100000");
let lines = 0;
for await (const line of counting.lines()) assert.equal(line, String(++lines));
assert.equal(lines, 100000);
await there.end();
"#;

/// Roots are kept in `folder`.
pub(crate) fn package_is_the_whole_set_up(folder: &Path, package: &Path) -> Result<()> {
    let near = fresh_root(folder, &NEAR)?;
    let tried = try_package(folder, package, &near);
    std::fs::remove_dir_all(&near).with_context(|| format!("cannot remove {}", near.display()))?;
    print!("{}", tried?);
    Ok(())
}

fn try_package(folder: &Path, package: &Path, near: &Path) -> Result<String> {
    let far = fresh_root(folder, &FAR)?;
    std::fs::rename(&far, near.join("far")).context("cannot put one root into the other")?;
    let shipped = near.join("shipped");
    std::fs::create_dir(&shipped).with_context(|| format!("cannot create {}", shipped.display()))?;
    std::fs::copy(package, shipped.join("package.tgz")).context("cannot copy the package")?;
    std::fs::write(shipped.join("first.mjs"), FIRST).context("cannot write first.mjs")?;
    let said = in_root(near, 0, &format!("{PREPARE}{INSTALL}{USE}"))?;
    ensure!(said.contains("here: 12.") && said.contains("there: 11."), "the two systems said: {said}");
    Ok(said)
}
