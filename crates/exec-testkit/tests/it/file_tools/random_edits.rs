//! Random edits, writes, removals and renames against a naive model: a map of names and texts.

use std::collections::BTreeMap;

use exec_tools::files::{EditManyRequest, EditRequest, FileEdit, Guard, Occurrences, WriteRequest};

use super::ToolTest;

/// A small generator of numbers, so that a failure can be repeated by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "d/c", "d/e/f"];
const WORDS: &[&str] = &["x", "xx", "y\n", "\n", "é", "xy"];

type Model = BTreeMap<&'static str, String>;

fn text(random: &mut Random) -> String {
    (0..random.below(6)).map(|_| *random.pick(WORDS)).collect()
}

fn edit(random: &mut Random) -> FileEdit {
    let path = *random.pick(NAMES);
    match random.below(6) {
        0 => FileEdit::Remove { path: path.into(), guard: Guard::Anything },
        1 => FileEdit::Rename { from: path.into(), to: (*random.pick(NAMES)).into() },
        2 => FileEdit::Write(WriteRequest::new(path, text(random))),
        _ => FileEdit::Replace(EditRequest {
            occurrences: *random.pick(&[Occurrences::Exactly(1), Occurrences::Exactly(2), Occurrences::All]),
            ..EditRequest::new(path, *random.pick(WORDS), text(random))
        }),
    }
}

/// What the edit should do; `None` if it does not fit.
fn apply(model: &mut Model, edit: &FileEdit) -> Option<()> {
    let name =
        |path: &std::path::Path| *NAMES.iter().find(|name| path == std::path::Path::new(name)).expect("one of ours");
    match edit {
        FileEdit::Remove { path, .. } => model.remove(name(path)).map(drop),
        FileEdit::Write(write) => {
            let contents = String::from_utf8(write.contents.to_vec()).expect("words are text");
            model.insert(name(&write.path), contents);
            Some(())
        }
        FileEdit::Rename { from, to } => {
            if model.contains_key(name(to)) {
                return None;
            }
            let contents = model.remove(name(from))?;
            model.insert(name(to), contents);
            Some(())
        }
        FileEdit::Replace(edit) => {
            let contents = model.get_mut(name(&edit.path))?;
            let count = contents.matches(edit.old.as_str()).count();
            let fits = match edit.occurrences {
                Occurrences::Exactly(expected) => count == expected,
                Occurrences::All => count > 0,
            };
            if !fits || edit.old == edit.new {
                return None;
            }
            *contents = contents.replace(edit.old.as_str(), &edit.new);
            Some(())
        }
    }
}

#[tokio::test]
async fn random_edits_of_several_files_equal_a_naive_model() {
    let test = ToolTest::local().await;
    let mut random = Random(7);
    let mut model = Model::new();
    let (mut fitting, mut refused) = (0, 0);
    for round in 0..150 {
        let edits: Vec<FileEdit> = (0..1 + random.below(4)).map(|_| edit(&mut random)).collect();
        let mut expected = model.clone();
        let fits = edits.iter().try_for_each(|edit| apply(&mut expected, edit).ok_or(()));
        let request = EditManyRequest { edits: edits.clone(), make_directories: true };
        let outcome = test.tools.edit_many(request).await;
        assert_eq!(outcome.is_ok(), fits.is_ok(), "round {round}: {edits:?}: {outcome:?}");
        match fits {
            Ok(()) => {
                model = expected;
                fitting += 1;
            }
            Err(()) => refused += 1,
        }
        for name in NAMES {
            assert_eq!(test.contents(name).as_ref(), model.get(name), "round {round}: {name} after {edits:?}");
        }
    }
    assert!(fitting > 20 && refused > 20, "both happen: {fitting} and {refused}");
}
