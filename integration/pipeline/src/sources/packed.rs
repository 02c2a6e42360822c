//! A file's bytes, unpacked while they are read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncSeekExt, BufReader, ReadBuf, SeekFrom};

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// By gzip, in one member or several.
    Gzip,
    /// By Zstandard, in one frame or several.
    Zstd,
}

/// A file as it reads unpacked.
pub(super) enum Input {
    Plain(BufReader<File>),
    Gzip(BufReader<GzipDecoder<BufReader<File>>>),
    Zstd(BufReader<ZstdDecoder<BufReader<File>>>),
}

impl Compression {
    /// The name of an option's value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What a file that begins so is compressed as (RFC 1952 2.3.1, RFC 8878 3.1.1).
    pub(super) fn of(begin: &[u8]) -> Option<Self> {
        match begin {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// `None` if it is none.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }
}

impl Input {
    pub(super) fn new(file: BufReader<File>, compression: Compression) -> Self {
        match compression {
            Compression::None => Self::Plain(file),
            Compression::Gzip => {
                let mut unpacked = GzipDecoder::new(file);
                unpacked.multiple_members(true);
                Self::Gzip(BufReader::new(unpacked))
            }
            Compression::Zstd => {
                let mut unpacked = ZstdDecoder::new(file);
                unpacked.multiple_members(true);
                Self::Zstd(BufReader::new(unpacked))
            }
        }
    }

    pub(super) fn compression(&self) -> Compression {
        match self {
            Self::Plain(_) => Compression::None,
            Self::Gzip(_) => Compression::Gzip,
            Self::Zstd(_) => Compression::Zstd,
        }
    }

    /// Goes from the begin to an offset, or to the end if that comes first; gives where it got.
    pub(super) async fn skip_to(&mut self, offset: u64) -> io::Result<u64> {
        if let Self::Plain(file) = self {
            let offset = offset.min(file.get_ref().metadata().await?.len());
            return file.seek(SeekFrom::Start(offset)).await;
        }
        // Nothing but unpacking it again leads there.
        let mut at = 0;
        while at < offset {
            let more = self.fill_buf().await?.len() as u64;
            if more == 0 {
                break;
            }
            let used = more.min(offset - at);
            self.consume(usize::try_from(used).expect("it is at most the length of a slice"));
            at += used;
        }
        Ok(at)
    }

    fn reader(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncBufRead + Send + Unpin)> {
        match self.get_mut() {
            Self::Plain(file) => Pin::new(file),
            Self::Gzip(file) => Pin::new(file),
            Self::Zstd(file) => Pin::new(file),
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reader().poll_read(context, buffer)
    }
}

impl AsyncBufRead for Input {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.reader().poll_fill_buf(context)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.reader().consume(amount);
    }
}
