//! WIRE 2.14, `fs/watchMissing`: one notification when a missing file appears.

use serde_json::{Value, json};

use super::case::Case;
use super::case_directory::{in_directory, uri};

impl Case {
    fn await_names(self, watch: u64, missing: &[&str], present: Option<&str>) -> Self {
        let missing: Vec<String> = missing.iter().map(|name| uri(name)).collect();
        self.call("fs/watchMissing", json!({"watchId": watch, "missing": missing, "present": present.map(uri)}))
    }
}

fn with_files(name: &str) -> Case {
    in_directory(name).file("a", "a").directory("d").link("l", "a").link("nowhere", "no").link("to-d", "d")
}

fn texts(names: impl IntoIterator<Item = String>) -> Value {
    names.into_iter().map(|name| json!(uri(&name))).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let write = json!({"dataBase64": "eA=="});
    let mut cases = vec![
        with_files("nothing to await").await_names(1, &[], None),
        with_files("something that is there").await_names(1, &["a"], None),
        with_files("a link that is there").await_names(1, &["l"], None),
        with_files("a link that leads nowhere").await_names(1, &["nowhere"], None),
        with_files("one missing, one there").await_names(1, &["x", "a"], None),
        with_files("present that is missing").await_names(1, &["x"], Some("y")),
        with_files("present alone").await_names(1, &[], Some("a")),
        with_files("present that is a folder").await_names(1, &["x"], Some("d")),
        with_files("present that is a link").await_names(1, &["x"], Some("l")),
        with_files("below a file").await_names(1, &["a/x"], None),
        with_files("below a link").await_names(1, &["to-d/x"], None),
        with_files("far below").await_names(1, &["p/q/r/s"], None),
        with_files("ids must grow")
            .await_names(5, &["x"], None)
            .await_names(5, &["y"], None)
            .await_names(4, &["y"], None)
            .await_names(6, &["y"], None),
        with_files("an id of zero").await_names(0, &["x"], None).await_names(1, &["x"], None),
        with_files("a refused watch uses its id")
            .await_names(3, &["a"], None)
            .await_names(3, &["x"], None)
            .await_names(2, &["x"], None),
        with_files("the largest id").await_names(u64::MAX, &["x"], None).await_names(1, &["x"], None),
        with_files("it comes into being").await_names(1, &["x"], None).fs("writeFile", "x", write.clone()).receive(),
        with_files("a folder comes into being")
            .await_names(1, &["x"], None)
            .fs("createDirectory", "x", json!({}))
            .receive(),
        with_files("one of two comes into being")
            .await_names(7, &["x", "d/y"], None)
            .fs("writeFile", "d/y", write.clone())
            .receive(),
        with_files("a folder on the way comes into being")
            .await_names(1, &["p/q/r"], None)
            .fs("createDirectory", "p", json!({}))
            .receive(),
        with_files("it is told once")
            .await_names(1, &["x"], None)
            .fs("writeFile", "x", write.clone())
            .receive()
            .fs("remove", "x", json!({}))
            .fs("writeFile", "x", write.clone())
            .await_names(2, &["y"], None)
            .fs("writeFile", "y", write.clone())
            .receive(),
        with_files("a newer watch takes the place")
            .await_names(1, &["x"], None)
            .await_names(2, &["d/y"], None)
            .fs("writeFile", "d/y", write.clone())
            .receive(),
        with_files("present changes")
            .await_names(1, &["x"], Some("d/../a"))
            .fs("writeFile", "a", write.clone())
            .receive(),
        with_files("present goes").await_names(1, &["x"], Some("a")).fs("remove", "a", json!({})).receive(),
        with_files("the same name twice").await_names(1, &["x", "x"], None),
        with_files("a circle on the way").link("circle", "circle").await_names(1, &["circle/x"], None),
        with_files("a foreign name").call("fs/watchMissing", json!({"watchId": 1, "missing": ["file:///C:/x"]})),
        with_files("a foreign name uses the id")
            .call("fs/watchMissing", json!({"watchId": 5, "missing": ["file:///C:/x"]}))
            .await_names(5, &["x"], None)
            .await_names(6, &["x"], None),
        with_files("a foreign present").call(
            "fs/watchMissing",
            json!({"watchId": 1, "missing": texts(["x".to_owned()]), "present": "file://host/x"}),
        ),
        with_files("present below a link").file("d/x", "").await_names(1, &["y"], Some("to-d/x")),
        with_files("far below a link").await_names(1, &["to-d/x/y/z"], None),
        with_files("no present").call("fs/watchMissing", json!({"watchId": 1, "missing": texts(["x".to_owned()])})),
    ];
    for count in [31, 33, 59, 60, 61, 62, 63, 64, 65, 66, 130] {
        let flat = texts((0..count).map(|at| format!("m{at}")));
        let apart = texts((0..count).map(|at| format!("f{at}/m")));
        let mut case =
            with_files(&format!("{count} names")).call("fs/watchMissing", json!({"watchId": 1, "missing": flat}));
        case = case.call("fs/watchMissing", json!({"watchId": 2, "missing": apart}));
        let mut folders = with_files(&format!("names in {count} folders")).file("d/in", "");
        for at in 0..count {
            folders = folders.directory(format!("f{at}"));
        }
        folders = folders.call("fs/watchMissing", json!({"watchId": 2, "missing": apart}));
        for (watch, present) in [(3, "a"), (4, "d"), (5, "d/in")] {
            let both = json!({"watchId": watch, "missing": apart, "present": uri(present)});
            folders = folders.call("fs/watchMissing", both);
        }
        let both = json!({"watchId": 3, "missing": flat, "present": uri("a")});
        cases.extend([case.call("fs/watchMissing", both), folders]);
    }
    for depth in [10, 33, 60, 61, 62, 63, 64, 65] {
        let deep = vec!["x"; depth].join("/");
        cases.push(with_files(&format!("{depth} folders on the way")).await_names(1, &[&deep], None));
    }
    cases
}
