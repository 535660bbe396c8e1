//! WIRE 2.14: files in blocks, by handles.

use serde_json::{Value, json};

use super::case::{Case, with};
use super::case_directory::{in_directory, uri};
use super::declared_differences::DeclaredDifference;

impl Case {
    fn open(self, handle: &str, name: &str, more: Value) -> Self {
        self.call("fs/open", with(json!({"handleId": handle, "path": uri(name)}), more))
    }

    fn block(self, handle: &str, offset: u64, len: u64) -> Self {
        self.call("fs/readBlock", json!({"handleId": handle, "offset": offset, "len": len}))
    }

    fn put(self, handle: &str, offset: u64, text: &str) -> Self {
        let chunk = base64_simd::STANDARD.encode_to_string(text);
        self.call("fs/writeBlock", json!({"handleId": handle, "offset": offset, "chunk": chunk}))
    }

    fn close(self, handle: &str) -> Self {
        self.call("fs/close", json!({"handleId": handle}))
    }
}

pub(super) fn cases() -> Vec<Case> {
    [handles(), reading(), writing()].concat()
}

fn with_files(name: &str) -> Case {
    in_directory(name)
        .file("a", "0123456789")
        .file("empty", "")
        .directory("d")
        .link("l", "a")
        .link("nowhere", "missing")
        .link("circle", "circle")
        .link("to-d", "d")
        .fifo("fifo")
        .socket("socket")
}

fn handles() -> Vec<Case> {
    let message = "unknown variant `write`, expected one of `read`, `replace`, `append`";
    let unknown_mode = json!({"error": {"code": -32602, "message": message}, "id": 2});
    let mut everything = Vec::new();
    for mode in ["$ABSENT", "read", "replace"] {
        let mut case = with_files(&format!("opening everything, mode {mode}"));
        let names = [
            "a",
            "empty",
            "d",
            "l",
            "nowhere",
            "circle",
            "to-d",
            "to-d/new",
            "fifo",
            "socket",
            "missing",
            "missing/x",
            "a/x",
            "a/",
            "",
        ];
        for name in names {
            let handle = if name.is_empty() { "none" } else { name };
            case = case.open(handle, name, json!({"mode": mode})).block(handle, 0, 4);
        }
        everything.push(case.snapshot());
    }
    let long = "0123456789012345678901234567890123456789";
    let mut many = with_files("128 handles");
    for at in 0..128 {
        many = many.open(&format!("h{at}"), "a", json!({}));
    }
    many = many.open("one more", "a", json!({})).open("h3", "a", json!({})).open(long, "a", json!({}));
    many = many.open("missing", "missing", json!({})).close("h3").open("one more", "a", json!({})).block("h127", 1, 2);
    everything.extend([
        many,
        with_files("a handle of 32 bytes").open(&long[..32], "a", json!({})).close(&long[..32]),
        with_files("a handle of 33 bytes").open(&long[..33], "a", json!({})),
        with_files("a handle of 33 bytes in fewer letters").open(&"ü".repeat(17), "a", json!({})),
        with_files("a long handle in every verb").block(long, 0, 1).put(long, 0, "x").close(long),
        with_files("an empty handle").open("", "a", json!({})).block("", 0, 3).close(""),
        with_files("a handle twice").open("h", "a", json!({})).open("h", "empty", json!({})).block("h", 0, 3),
        with_files("a handle twice, the second missing").open("h", "a", json!({})).open("h", "missing", json!({})),
        with_files("a handle after a failed open")
            .open("h", "missing", json!({}))
            .open("h", "a", json!({}))
            .block("h", 0, 1),
        with_files("a handle again after close")
            .open("h", "a", json!({}))
            .close("h")
            .open("h", "empty", json!({}))
            .block("h", 0, 1),
        with_files("closing twice").open("h", "a", json!({})).close("h").close("h").block("h", 0, 1),
        with_files("closing what never was").close("nothing"),
        with_files("reading what never was").block("nothing", 0, 1),
        with_files("writing what never was").put("nothing", 0, "x"),
        with_files("a handle with quotes").block("a`b\"c", 0, 1),
        with_files("an unknown mode")
            .open("h", "a", json!({"mode": "write"}))
            .differs(DeclaredDifference::Added, unknown_mode),
        with_files("a device to be replaced")
            .call("fs/open", json!({"handleId": "h", "path": "file:///dev/null", "mode": "replace"}))
            .put("h", 0, "x")
            .close("h"),
        with_files("a long handle and no length").block(long, 0, 0).put(long, 0, "").put(long, u64::MAX, "x"),
        with_files("null for mode").open("h", "a", json!({"mode": null})),
        with_files("a foreign path").call("fs/open", json!({"handleId": "h", "path": "file:///C:/x"})),
        with_files("a foreign path and a long handle")
            .call("fs/open", json!({"handleId": long, "path": "file:///C:/x"})),
        with_files("handles belong to a connection")
            .open("h", "a", json!({}))
            .connect()
            .initialize()
            .block("h", 0, 1)
            .use_connection(0)
            .block("h", 0, 1),
        with_files("a file removed while open")
            .open("h", "a", json!({}))
            .fs("remove", "a", json!({}))
            .block("h", 0, 20),
        with_files("a file replaced while open")
            .open("h", "a", json!({}))
            .fs("writeFile", "empty", json!({"dataBase64": "eHl6"}))
            .block("h", 0, 20),
    ]);
    everything
}

fn reading() -> Vec<Case> {
    let mut case = with_files("blocks at every offset").open("h", "a", json!({}));
    for (offset, len) in
        [(0, 1), (0, 9), (0, 10), (0, 11), (5, 5), (5, 6), (9, 1), (9, 2), (10, 1), (11, 1), (1000, 1), (3, 0)]
    {
        case = case.block("h", offset, len);
    }
    vec![
        case,
        with_files("the longest block").open("h", "a", json!({})).block("h", 0, 1 << 20),
        with_files("a longer block").open("h", "a", json!({})).block("h", 0, (1 << 20) + 1).block("h", 0, 1),
        with_files("the largest block").open("h", "a", json!({})).block("h", 0, u64::MAX).block("h", 0, 1),
        with_files("the largest offset").open("h", "a", json!({})).block("h", u64::MAX, 1).block("h", 0, 1),
        with_files("an offset of 2^63").open("h", "a", json!({})).block("h", 1 << 63, 1).block("h", 0, 1),
        with_files("an offset just below 2^63").open("h", "a", json!({})).block("h", (1 << 63) - 1, 1).block("h", 0, 1),
        with_files("a block of no length from nothing").block("nothing", 0, 0),
        with_files("an empty file").open("h", "empty", json!({})).block("h", 0, 1),
        in_directory("a file the kernel makes up")
            .call("fs/open", json!({"handleId": "h", "path": "file:///proc/sys/kernel/ostype"}))
            .block("h", 0, 100),
        in_directory("a megabyte").file("m", vec![b'm'; 1 << 20]).open("h", "m", json!({})).block("h", 0, 100).block(
            "h",
            (1 << 20) - 5,
            100,
        ),
    ]
}

fn writing() -> Vec<Case> {
    let replaced = |name: &str| with_files(name).open("h", "a", json!({"mode": "replace"}));
    vec![
        replaced("opening empties").close("h").snapshot(),
        replaced("blocks in order").put("h", 0, "abc").put("h", 3, "def").close("h").snapshot(),
        replaced("blocks out of order").put("h", 3, "def").put("h", 0, "abc").close("h").snapshot(),
        replaced("a block over another").put("h", 0, "abcdef").put("h", 2, "XY").close("h").snapshot(),
        replaced("a hole").put("h", 5, "x").close("h").snapshot(),
        replaced("an empty block").put("h", 0, "").put("h", 0, "x").close("h").snapshot(),
        replaced("a block that is too long").put("h", 0, &"x".repeat((1 << 20) + 1)).close("h").snapshot(),
        replaced("the longest block written").put("h", 0, &"x".repeat(1 << 20)).close("h").snapshot(),
        replaced("the last offset").put("h", u64::MAX, "x").close("h").snapshot(),
        replaced("an offset beyond files").put("h", (1 << 63) - 1, "x").put("h", 0, "y").close("h").snapshot(),
        replaced("an end beyond what the disk can").put("h", (1 << 63) - 2, "x").put("h", 0, "y").close("h").snapshot(),
        replaced("reading a handle for writing")
            .put("h", 0, "x")
            .block("h", 0, 1)
            .put("h", 1, "y")
            .close("h")
            .snapshot(),
        with_files("writing a handle for reading")
            .open("h", "a", json!({}))
            .put("h", 0, "x")
            .block("h", 0, 2)
            .close("h")
            .snapshot(),
        with_files("an empty block to nothing").put("nothing", 0, ""),
        with_files("an offset beyond files to nothing").put("nothing", u64::MAX, "x"),
        with_files("replacing through a link")
            .open("h", "l", json!({"mode": "replace"}))
            .put("h", 0, "new")
            .close("h")
            .snapshot(),
        with_files("replacing through a link that leads nowhere")
            .open("h", "nowhere", json!({"mode": "replace"}))
            .put("h", 0, "new")
            .close("h")
            .snapshot(),
        with_files("permissions are kept")
            .mode("a", 0o751)
            .open("h", "a", json!({"mode": "replace"}))
            .put("h", 0, "n")
            .close("h")
            .snapshot(),
        with_files("a new file").open("h", "new", json!({"mode": "replace"})).close("h").snapshot(),
        with_files("bad base64")
            .open("h", "a", json!({"mode": "replace"}))
            .call("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "*"}))
            .call("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "YQ"})),
    ]
}
