//! Watches at the far end.
//!
//! A watch belongs to its connection. After a break it is set up again, and the caller is told to look through the root
//! once more, exactly as when the kernel could not keep up: what happened meanwhile, nobody has seen.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use exec_env::BoxFuture;
use exec_env::files::{ChangeBatch, ChangeStream, FileError, FileFuture, MissingPathWatch, FileVerb, WatchOptions};
use exec_wire::NotificationMethod;
use exec_wire::fs as wire;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{At, ask, fresh_id, tell, uri};
use crate::convert;
use crate::limits::HEARD;
use crate::link::{Heard, Link};
use crate::replay::Replay;

/// Begins one.
pub(super) async fn watch(link: Link, root: PathBuf, options: WatchOptions) -> Result<Box<dyn ChangeStream>, FileError> {
    let ear = listen(link.clone(), root.clone(), options).await?;
    Ok(Box::new(RemoteChanges { link, root, options, state: State::Hearing(ear) }))
}

/// What is heard of one watch of one connection. Dropping it ends the watch.
struct Ear {
    link: Link,
    watch_id: String,
    hearing: mpsc::Receiver<Heard>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        tell(&self.link, wire::UnwatchParams { watch_id: std::mem::take(&mut self.watch_id) });
    }
}

async fn listen(link: Link, root: PathBuf, options: WatchOptions) -> Result<Ear, FileError> {
    let at = At::new(FileVerb::Watch, &root);
    let path = at.uri()?;
    loop {
        // Listening begins before the question, or the first change could be missed.
        let watch_id = fresh_id();
        let hearing = link.listen_about(NotificationMethod::FsChanged, &watch_id, HEARD);
        let params = wire::WatchParams {
            watch_id: watch_id.clone(),
            path: path.clone(),
            recursive: Some(options.recursive),
            ignore_files: options.ignore_files,
            sandbox: None,
        };
        ask(&link, at, &params, Replay::Again).await?;
        let ear = Ear { link: link.clone(), watch_id, hearing };
        // The connection broke while it was asked: then it is asked on the new one, and nobody listens there yet.
        if !ear.hearing.is_closed() {
            return Ok(ear);
        }
    }
}

struct RemoteChanges {
    link: Link,
    root: PathBuf,
    options: WatchOptions,
    state: State,
}

enum State {
    Hearing(Ear),
    /// Kept here, so that whoever stops waiting does not stop it.
    Again(BoxFuture<'static, Result<Ear, FileError>>),
    Over,
}

impl ChangeStream for RemoteChanges {
    fn next(&mut self) -> FileFuture<'_, Option<ChangeBatch>> {
        Box::pin(async move {
            loop {
                match &mut self.state {
                    State::Over => return Ok(None),
                    State::Hearing(ear) => match next_notice(ear).await {
                        Some(changed) if changed.ended => {
                            self.state = State::Over;
                            let (_, overflow) = convert::changes(changed);
                            return Ok(overflow.map(|root| ChangeBatch { changes: Vec::new(), overflow: Some(root) }));
                        }
                        Some(changed) => {
                            let (changes, overflow) = convert::changes(changed);
                            return Ok(Some(ChangeBatch { changes, overflow }));
                        }
                        None => {
                            let again = listen(self.link.clone(), self.root.clone(), self.options);
                            self.state = State::Again(Box::pin(again));
                        }
                    },
                    State::Again(again) => match again.await {
                        Ok(ear) => {
                            self.state = State::Hearing(ear);
                            let overflow = Some(self.root.clone());
                            return Ok(Some(ChangeBatch { changes: Vec::new(), overflow }));
                        }
                        Err(error) => {
                            self.state = State::Over;
                            // The root went while nobody looked.
                            return if error.is_not_found() { Ok(None) } else { Err(error) };
                        }
                    },
                }
            }
        })
    }
}

/// The next word about this watch; `None` if none will come.
async fn next_notice(ear: &mut Ear) -> Option<wire::ChangedParams> {
    loop {
        let heard = ear.hearing.recv().await?;
        match heard.params.decode::<wire::ChangedParams>() {
            Ok(changed) if changed.watch_id == ear.watch_id => return Some(changed),
            _ => {}
        }
    }
}

/// Watches for what is missing. The wire has one per connection, so that a newer one takes the place of the last, which
/// is then told that something might have come.
#[derive(Debug, Default)]
pub(super) struct MissingWatches {
    last: Mutex<(u64, CancellationToken)>,
}

impl MissingWatches {
    pub(super) async fn watch(
        &self,
        link: &Link,
        missing: &[PathBuf],
        present: Option<&Path>,
    ) -> Result<Option<Box<dyn MissingPathWatch>>, FileError> {
        let at = At::new(FileVerb::Watch, missing.first().map_or(Path::new("/"), PathBuf::as_path));
        let (watch_id, replaced) = self.replace();
        let params = wire::WatchMissingParams {
            watch_id,
            missing: missing.iter().map(|path| uri(at, path)).collect::<Result<_, _>>()?,
            present: present.map(|path| uri(at, path)).transpose()?,
        };
        let hearing = link.listen_about(NotificationMethod::FsMissingChanged, &watch_id.to_string(), HEARD);
        let answer = ask(link, at, &params, Replay::Again).await?;
        Ok(answer.watching.then(|| Box::new(RemoteMissing { watch_id, hearing, replaced }) as Box<dyn MissingPathWatch>))
    }

    fn replace(&self) -> (u64, CancellationToken) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1.cancel();
        *last = (last.0 + 1, CancellationToken::new());
        last.clone()
    }
}

struct RemoteMissing {
    watch_id: u64,
    hearing: mpsc::Receiver<Heard>,
    replaced: CancellationToken,
}

impl MissingPathWatch for RemoteMissing {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let told = async {
                // A connection that broke may have taken the word with it: something might have come.
                while let Some(heard) = self.hearing.recv().await {
                    let told = heard.params.decode::<wire::MissingChangedParams>();
                    if told.is_ok_and(|told| told.watch_id == self.watch_id) {
                        break;
                    }
                }
            };
            self.replaced.run_until_cancelled(told).await;
        })
    }
}
