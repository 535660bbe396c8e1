//! `read` and `view_image`: what is shown, and what is said about the rest.

use exec_env::files::ContentHash;
use exec_tools::files::read::ViewedContent;
use exec_tools::files::{ImageRequest, ReadRequest, Start, Viewed};

use super::{ToolTest, message, near_and_far};

near_and_far! {
    lines_come_with_their_numbers_and_the_hash_of_the_whole,
    ranges_from_either_end_say_what_is_left_out,
    a_large_file_is_read_in_little_and_hashed_whole,
    a_huge_line_is_cut_and_the_rest_is_counted,
    what_is_no_text_is_said,
    line_ends_and_a_missing_one_are_said,
    a_byte_bound_ends_between_lines,
    an_image_is_known_by_its_contents,
}

/// The numbers and texts of the lines.
fn lines(viewed: &Viewed) -> Vec<(u64, &str)> {
    match &viewed.content {
        ViewedContent::Text(text) => text.lines.iter().map(|line| (line.number, line.text.as_str())).collect(),
        ViewedContent::Binary { .. } => panic!("it is text"),
    }
}

async fn lines_come_with_their_numbers_and_the_hash_of_the_whole(test: ToolTest) {
    let path = test.file("a.txt", "one\ntwo\nthree\n");
    let viewed = test.tools.read(ReadRequest::new("a.txt")).await.expect("it is there");
    assert_eq!(viewed.path, path);
    assert_eq!(viewed.hash, ContentHash(blake3::hash(b"one\ntwo\nthree\n")));
    assert_eq!(lines(&viewed), [(1, "one"), (2, "two"), (3, "three")]);
    assert!(viewed.text().contains("     2\ttwo\n"), "{}", viewed.text());
    test.file("empty", "");
    let viewed = test.tools.read(ReadRequest::new("empty")).await.expect("it is there");
    assert!(viewed.text().contains("[the file is empty]"), "{}", viewed.text());
    let missing = message(test.tools.read(ReadRequest::new("nowhere")).await);
    assert!(missing.contains("does not exist") && missing.contains("list its directory"), "{missing}");
}

async fn ranges_from_either_end_say_what_is_left_out(test: ToolTest) {
    let text: String = (1..=100).map(|number| format!("line {number}\n")).collect();
    test.file("a", text);
    let range = ReadRequest { start: Start::Line(40), max_lines: 3, ..ReadRequest::new("a") };
    let viewed = test.tools.read(range).await.expect("it is there");
    assert_eq!(lines(&viewed), [(40, "line 40"), (41, "line 41"), (42, "line 42")]);
    let text = viewed.text();
    assert!(
        text.contains("[39 lines before") && text.contains("[58 more lines of 100: read on from line 43]"),
        "{text}"
    );
    let last = ReadRequest { start: Start::FromEnd(2), ..ReadRequest::new("a") };
    let viewed = test.tools.read(last).await.expect("it is there");
    assert_eq!(lines(&viewed), [(99, "line 99"), (100, "line 100")]);
    let beyond = ReadRequest { start: Start::Line(101), ..ReadRequest::new("a") };
    let viewed = test.tools.read(beyond).await.expect("it is there");
    assert!(viewed.text().contains("[no line there: the file has 100 lines]"), "{}", viewed.text());
    let zero = ReadRequest { start: Start::Line(0), ..ReadRequest::new("a") };
    assert!(message(test.tools.read(zero).await).contains("counted from 1"));
}

async fn a_large_file_is_read_in_little_and_hashed_whole(test: ToolTest) {
    let text: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    test.file("big", &text);
    let last = ReadRequest { start: Start::FromEnd(1), ..ReadRequest::new("big") };
    let viewed = test.tools.read(last).await.expect("it is there");
    assert_eq!(viewed.hash, ContentHash(blake3::hash(text.as_bytes())));
    assert_eq!((viewed.size_bytes, lines(&viewed)), (text.len() as u64, vec![(400_000, "400000")]));
}

async fn a_huge_line_is_cut_and_the_rest_is_counted(test: ToolTest) {
    // The cut would go through a character: 1,999 bytes are shown.
    test.file("wide", format!("x{}\nnext\n", "é".repeat(1_500_000)));
    let viewed = test.tools.read(ReadRequest::new("wide")).await.expect("it is there");
    let ViewedContent::Text(text) = &viewed.content else { panic!("it is text") };
    assert_eq!((text.lines[0].text.len(), text.lines[0].cut_bytes), (1_999, 3_000_001 - 1_999));
    assert_eq!((text.invalid_lines, lines(&viewed)[1]), (0, (2, "next")));
    assert!(viewed.text().contains("[... 2998002 more bytes in this line]"));
}

async fn what_is_no_text_is_said(test: ToolTest) {
    test.file("bin", b"ELF\0\x01\x02");
    let viewed = test.tools.read(ReadRequest::new("bin")).await.expect("it is there");
    assert_eq!(viewed.content, ViewedContent::Binary { image: None });
    assert!(viewed.text().contains("no text"));
    test.file("latin1", b"caf\xe9\nplain\n");
    let viewed = test.tools.read(ReadRequest::new("latin1")).await.expect("it is there");
    assert_eq!(lines(&viewed), [(1, "caf\u{fffd}"), (2, "plain")]);
    assert!(viewed.text().contains("[1 of these lines are no UTF-8"), "{}", viewed.text());
    let directory = message(test.tools.read(ReadRequest::new(".")).await);
    assert!(directory.contains("is a directory: list it"), "{directory}");
}

async fn line_ends_and_a_missing_one_are_said(test: ToolTest) {
    test.file("dos", "a\r\nb");
    let viewed = test.tools.read(ReadRequest::new("dos")).await.expect("it is there");
    assert_eq!(lines(&viewed), [(1, "a"), (2, "b")]);
    let text = viewed.text();
    assert!(text.contains("[the last line has no line break") && text.contains("CR LF"), "{text}");
}

async fn a_byte_bound_ends_between_lines(test: ToolTest) {
    test.file("a", "0123456789\n".repeat(100));
    let bounded = ReadRequest { max_bytes: 60, ..ReadRequest::new("a") };
    let viewed = test.tools.read(bounded).await.expect("it is there");
    assert_eq!(lines(&viewed).len(), 3, "ten bytes and eight for the number each");
    let tail = ReadRequest { start: Start::FromEnd(50), max_bytes: 60, ..ReadRequest::new("a") };
    let viewed = test.tools.read(tail).await.expect("it is there");
    assert_eq!(lines(&viewed).iter().map(|line| line.0).collect::<Vec<_>>(), [98, 99, 100]);
}

async fn an_image_is_known_by_its_contents(test: ToolTest) {
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, 1, 0, 0, 0, 0, 200, 8, 6, 0, 0, 0], b"\0\0\0\0IEND1234"];
    let png = png.concat();
    test.file("picture.txt", &png);
    let image = test.tools.view_image(ImageRequest { path: "picture.txt".into() }).await.expect("it is an image");
    assert_eq!((image.media_type(), image.size, &image.bytes[..]), ("image/png", Some((256, 200)), &png[..]));
    let viewed = test.tools.read(ReadRequest::new("picture.txt")).await.expect("it is there");
    assert!(viewed.text().contains("image/png; view it as an image"), "{}", viewed.text());
    // A picture that is still being written would end a model's conversation.
    for cut in [png.len() - 1, 30, 20] {
        test.file("cut.png", &png[..cut]);
        let refused = message(test.tools.view_image(ImageRequest { path: "cut.png".into() }).await);
        assert!(refused.contains("damaged or cut off"), "{refused}");
    }
    test.file("fake.png", "no image");
    let refused = message(test.tools.view_image(ImageRequest { path: "fake.png".into() }).await);
    assert!(refused.contains("text; read it instead") && refused.contains("PNG, JPEG, GIF and WebP"), "{refused}");
    let huge = std::fs::File::create(test.path("huge.png")).expect("it is ours");
    huge.set_len(11 << 20).expect("a hole takes no room");
    let refused = message(test.tools.view_image(ImageRequest { path: "huge.png".into() }).await);
    assert!(refused.contains("at most 10485760"), "{refused}");
}
