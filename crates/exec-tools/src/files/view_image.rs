//! `view_image`: the bytes of an image that a model can be shown, known by its contents and not by its name.

use std::fmt::Write;
use std::path::PathBuf;

use bytes::Bytes;
use exec_env::files::LinkPolicy;

use super::limits::IMAGE_BYTES;
use super::paths::shown;
use super::{FileToolError, FileTools};

/// Which image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRequest {
    /// Its file.
    pub path: PathBuf,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Absolute.
    pub path: PathBuf,
    /// By its contents.
    pub format: ImageFormat,
    /// Width and height in pixels; `None` if the file is cut off before it says so.
    pub size: Option<(u32, u32)>,
    /// The file as it is.
    pub bytes: Bytes,
}

impl Image {
    /// `image/png`, …
    pub fn media_type(&self) -> &'static str {
        self.format.media_type()
    }

    /// For a model: what the image beside this text is.
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}, {} bytes", shown(&self.path), self.media_type(), self.bytes.len());
        if let Some((width, height)) = self.size {
            let _ = write!(out, ", {width} x {height} pixels");
        }
        out.push('\n');
        out
    }
}

/// The formats that models can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are known by these names")]
pub enum ImageFormat {
    Png,
    Jpeg,
    Gif,
    WebP,
}

impl ImageFormat {
    /// The format of a file that begins like this.
    pub fn of(beginning: &[u8]) -> Option<Self> {
        match beginning {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            _ => None,
        }
    }

    /// `image/png`, …
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
        }
    }

    /// Whether the file has a size and an end. Models' servers refuse a conversation with an image that they cannot read, again
    /// and again; so what is easily seen to be cut off is not shown. Pixels are not decoded here.
    fn is_whole(self, bytes: &[u8]) -> bool {
        let has_size = self.size(bytes).is_some_and(|(width, height)| width > 0 && height > 0);
        // Some programs write more behind the end.
        has_size
            && match self {
                Self::Png => memchr::memmem::rfind(bytes, b"IEND").is_some_and(|at| bytes.len() >= at + 8),
                Self::Jpeg => memchr::memmem::rfind(bytes, &[0xff, 0xd9]).is_some(),
                Self::Gif => memchr::memrchr(0x3b, bytes).is_some_and(|at| at > 10),
                Self::WebP => little(bytes, 4, 4).is_some_and(|rest| bytes.len() as u64 >= 8 + u64::from(rest)),
            }
    }

    /// Width and height, as the file says.
    pub fn size(self, bytes: &[u8]) -> Option<(u32, u32)> {
        match self {
            Self::Png => Some((big(bytes, 16, 4)?, big(bytes, 20, 4)?)),
            Self::Gif => Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?)),
            Self::Jpeg => jpeg_size(bytes),
            Self::WebP => webp_size(bytes),
        }
    }
}

impl FileTools {
    /// An image to be shown to a model.
    pub async fn view_image(&self, request: ImageRequest) -> Result<Image, FileToolError> {
        let path = self.resolve(&request.path)?;
        let metadata = self.metadata_of_file(&path).await?;
        if metadata.size_bytes > IMAGE_BYTES {
            return Err(FileToolError::TooLarge { path, size_bytes: metadata.size_bytes, limit_bytes: IMAGE_BYTES });
        }
        let bytes = self.files.read(&path, LinkPolicy::Follow).await?;
        if bytes.len() as u64 > IMAGE_BYTES {
            return Err(FileToolError::TooLarge { path, size_bytes: bytes.len() as u64, limit_bytes: IMAGE_BYTES });
        }
        let Some(format) = ImageFormat::of(&bytes) else {
            return Err(FileToolError::NotAnImage { path, what: what_else(&bytes) });
        };
        if !format.is_whole(&bytes) {
            return Err(FileToolError::NotAnImage { path, what: "an image that is damaged or cut off" });
        }
        Ok(Image { path, format, size: format.size(&bytes), bytes })
    }
}

/// What a file that is none of the formats may be.
fn what_else(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "empty",
        [b'%', b'P', b'D', b'F', ..] => "a PDF",
        [b'B', b'M', ..] => "a BMP image",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "a TIFF image",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "an AVIF or HEIC image, or a video",
        _ if bytes.starts_with(b"<svg") || bytes.starts_with(b"<?xml") => "an SVG image or other XML; read it as text",
        _ if !super::text_file::is_binary(bytes) => "text; read it instead",
        _ => "binary data",
    }
}

fn big(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    Some(bytes.get(at..at + len)?.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    Some(bytes.get(at..at + len)?.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

/// In the first start-of-frame segment, behind segments that are stepped over by their lengths.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        // A marker may have any number of fill bytes before it.
        while bytes.get(at)? == &0xff && bytes.get(at + 1)? == &0xff {
            at += 1;
        }
        if bytes.get(at)? != &0xff {
            return None;
        }
        match bytes.get(at + 1)? {
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?)),
            // The picture begins, and no frame header came.
            0xda | 0xd9 => return None,
            _ => {}
        }
        at += 2 + usize::try_from(big(bytes, at + 2, 2)?).ok()?.max(2);
    }
}

/// One of three layouts: lossy, lossless, extended.
fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff)),
        b"VP8L" => {
            let bits = little(bytes, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_the_headers_of_all_four_formats() {
        let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, 1, 0, 0, 0, 0, 200]].concat();
        let gif = [&b"GIF89a"[..], &[0x40, 1, 0xc8, 0]].concat();
        let jpeg = [&[0xff, 0xd8, 0xff, 0xe0, 0, 4, 9, 9, 0xff, 0xff, 0xc2, 0, 11, 8, 0, 200, 1, 64][..]].concat();
        let webp = [&b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"[..], &[0x3f, 1, 0, 0xc7, 0, 0]].concat();
        let lossless = [&b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f"[..], &(319_u32 | 199 << 14).to_le_bytes()].concat();
        for (bytes, format, size) in [
            (png, ImageFormat::Png, (256, 200)),
            (gif, ImageFormat::Gif, (320, 200)),
            (jpeg, ImageFormat::Jpeg, (320, 200)),
            (webp, ImageFormat::WebP, (320, 200)),
            (lossless, ImageFormat::WebP, (320, 200)),
        ] {
            assert_eq!(ImageFormat::of(&bytes), Some(format));
            assert_eq!(format.size(&bytes), Some(size), "{format:?}");
        }
    }

    #[test]
    fn a_header_that_is_cut_off_anywhere_has_no_size_and_does_no_harm() {
        let jpeg = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 9, 9, 0xff, 0xff, 0xc2, 0, 11, 8, 0, 200, 1, 64];
        for end in 0..jpeg.len() {
            assert_eq!(ImageFormat::Jpeg.size(&jpeg[..end]), None, "{end}");
            for format in [ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP] {
                let _any = format.size(&jpeg[..end]);
            }
        }
        assert_eq!(ImageFormat::Jpeg.size(&[0xff; 100]), None);
    }
}
