//! `exec-server token`: makes tokens and keys, and tells what is known of a token.
//!
//! A token is printed only if `--print` asks for it, and is never taken from the command line.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use exec_transport::token::{
    Audience, Exposure, TokenClaims, TokenScope, WeakestSandbox, create_secret_file, new_capability_token,
    new_key_pair, read_secret_file, sha256_of_token,
};
use serde::Serialize;

use crate::args::{InspectArgs, KeygenArgs, NewTokenArgs, ScopeArgs, TokenCommand};
use crate::{messages, target};

pub(crate) async fn run(command: &TokenCommand) -> anyhow::Result<u8> {
    match command {
        TokenCommand::New(args) => new(args),
        TokenCommand::Keygen(args) => keygen(args),
        TokenCommand::Inspect(args) => inspect(args),
    }
}

fn new(args: &NewTokenArgs) -> anyhow::Result<u8> {
    let token = match args.scoped {
        true => scoped_token(&args.scope)?,
        false => new_capability_token()?,
    };
    if args.print {
        messages::print_stdout(format!("{token}\n").as_bytes())?;
        return Ok(0);
    }
    let path = match &args.file {
        Some(path) => path.clone(),
        None => {
            let folder = target::state_directory()?;
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
            folder.join("token")
        }
    };
    create_secret_file(&path, &token)?;
    print_path(&path)
}

fn scoped_token(args: &ScopeArgs) -> anyhow::Result<String> {
    let key = args.key.as_ref().context("a scoped token needs --key")?;
    let lifetime = args.expires.context("a scoped token needs --expires")?;
    let end = SystemTime::now().checked_add(lifetime).context("the token would never expire: choose a shorter time")?;
    let seconds = end.duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    anyhow::ensure!(
        !args.roots.is_empty() || args.weakest_sandbox != Some(WeakestSandbox::WorkspaceWrite),
        "--weakest-sandbox workspace-write needs --roots, which say where the workspace is"
    );
    let claims = TokenClaims {
        exp: i64::try_from(seconds).context("the token would never expire: choose a shorter time")?,
        nbf: None,
        iss: args.issuer.clone(),
        sub: args.subject.clone(),
        aud: (!args.environments.is_empty()).then(|| Audience::Many(args.environments.clone())),
        scope: Some(TokenScope {
            methods: args.methods.clone(),
            roots: (!args.roots.is_empty()).then(|| args.roots.clone()),
            weakest_sandbox: args.weakest_sandbox,
        }),
    };
    Ok(claims.sign(key)?)
}

fn keygen(args: &KeygenArgs) -> anyhow::Result<u8> {
    let (private, public) = new_key_pair()?;
    let mut public_file = args.file.clone().into_os_string();
    public_file.push(".pub");
    let public_file = PathBuf::from(public_file);
    // The private half first: it is the one that must not replace a file that is in use.
    create_secret_file(&args.file, &private)?;
    std::fs::write(&public_file, public).with_context(|| format!("cannot write {}", public_file.display()))?;
    print_path(&args.file)?;
    print_path(&public_file)
}

fn print_path(path: &Path) -> anyhow::Result<u8> {
    messages::print_stdout(format!("{}\n", path.display()).as_bytes())?;
    Ok(0)
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Inspected {
    /// It says nothing of itself.
    Capability {
        /// For `serve --ws-token-sha256`.
        sha256: String,
        readable_by_others: bool,
    },
    Signed {
        claims: TokenClaims,
        /// `null` if no key was given to check it with.
        signature_is_good: Option<bool>,
        is_expired: bool,
        readable_by_others: bool,
    },
}

fn inspect(args: &InspectArgs) -> anyhow::Result<u8> {
    let file = read_secret_file(&args.file, Exposure::Reported)?;
    let token = String::from_utf8(file.content).ok().filter(|token| !token.is_empty());
    let token = token.with_context(|| format!("there is no token in {}", args.file.display()))?;
    let readable_by_others = file.is_exposed;
    let found = match TokenClaims::read_unverified(&token) {
        Ok(claims) => {
            let key = args.public_key.as_ref();
            let signature_is_good = key.map(|key| TokenClaims::read_verified(&token, key)).transpose()?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let is_expired = u64::try_from(claims.exp).is_ok_and(|end| end < now) || claims.exp < 0;
            let signature_is_good = signature_is_good.map(|verified| verified.is_some());
            Inspected::Signed { claims, signature_is_good, is_expired, readable_by_others }
        }
        Err(_) => Inspected::Capability { sha256: sha256_of_token(&token), readable_by_others },
    };
    match args.json {
        true => messages::print_json(&found)?,
        false => messages::print_stdout(describe(&found).as_bytes())?,
    }
    let refused = matches!(
        &found,
        Inspected::Signed { signature_is_good: Some(false), .. } | Inspected::Signed { is_expired: true, .. }
    );
    Ok(if refused { crate::exit_code::FAILED } else { 0 })
}

fn describe(found: &Inspected) -> String {
    let mut lines = Vec::new();
    let readable_by_others = match found {
        Inspected::Capability { sha256, readable_by_others } => {
            lines.push("a capability token: whoever has it may do everything".to_owned());
            lines.push(format!("sha256: {sha256}"));
            readable_by_others
        }
        Inspected::Signed { claims, signature_is_good, is_expired, readable_by_others } => {
            lines.push(format!("a signed token for {}", claims.sub.as_deref().unwrap_or("nobody in particular")));
            lines.push(format!(
                "expires: {} seconds after 1970{}",
                claims.exp,
                if *is_expired { ", which is over" } else { "" }
            ));
            match &claims.scope {
                Some(scope) => {
                    let methods: Vec<String> = scope.methods.iter().map(ToString::to_string).collect();
                    lines.push(format!("methods: {}", methods.join(", ")));
                    if let Some(roots) = &scope.roots {
                        let roots: Vec<String> = roots.iter().map(ToString::to_string).collect();
                        lines.push(format!("roots: {}", roots.join(", ")));
                    }
                    if let Some(sandbox) = scope.weakest_sandbox {
                        lines.push(format!("sandbox: at least {}", sandbox.name()));
                    }
                }
                None => lines.push("methods: all".to_owned()),
            }
            lines.push(match signature_is_good {
                Some(true) => "signature: good".to_owned(),
                Some(false) => "signature: NOT of that key".to_owned(),
                None => "signature: not checked; give --public-key".to_owned(),
            });
            readable_by_others
        }
    };
    if *readable_by_others {
        lines.push("other users can read it: chmod 600 it, and make a new one".to_owned());
    }
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}
