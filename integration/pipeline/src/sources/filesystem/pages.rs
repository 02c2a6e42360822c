//! A file as the Parquet library reads it, from several places at once; what the system refused is kept, since the library tells only texts.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// An open file. A clone is the same file.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    file: Arc<File>,
    size: u64,
    failure: Arc<Mutex<Option<io::Error>>>,
}

/// Reads on from a place.
#[derive(Debug)]
pub(super) struct From {
    pages: Pages,
    at: u64,
}

impl Pages {
    /// `size` is the file's, in bytes.
    pub(super) fn new(file: File, size: u64) -> Self {
        Self {
            file: Arc::new(file),
            size,
            failure: Arc::default(),
        }
    }

    /// The last failure to read, if there was one since this was asked.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Pages {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(From {
            pages: self.clone(),
            at: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.size);
        if end.is_none() {
            return Err(ParquetError::EOF("behind the end of the file".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.pages.file.read_at(buffer, self.at) {
            Ok(read) => {
                self.at += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                let mut failure = self.pages.failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error);
                Err(kind.into())
            }
        }
    }
}
