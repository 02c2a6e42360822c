//! One connection: two directions, each of which can be closed, held or lost while the other one lives.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::door::Door;
use crate::scenario::Way;

/// Bytes that one direction of a connection holds.
const PIPE: usize = 1 << 18;

/// Decides about a connection's bytes, cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    to_server: Direction,
    to_client: Direction,
}

/// What becomes of the bytes that go one way, cheap to clone.
#[derive(Clone, Debug, Default)]
struct Direction(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    course: Course,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Course {
    #[default]
    Flows,
    /// Nothing is delivered, and what is written waits.
    Held,
    /// What was written before is delivered, and then its end. What is written later goes nowhere, and its writer does not hear so.
    Closed,
}

/// The process's end of a connection.
#[derive(Debug)]
pub(crate) struct Inside {
    pipe: DuplexStream,
    door: Door,
    wire: Wire,
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Outside {
    pipe: DuplexStream,
    door: Door,
    wire: Wire,
}

/// A connection from behind this door: the process's end, the server's, and what decides about its bytes.
pub(super) fn connection(door: &Door) -> (Inside, Outside, Wire) {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let wire = Wire {
        to_server: Direction::default(),
        to_client: Direction::default(),
    };
    let inside = Inside {
        pipe: ours,
        door: door.clone(),
        wire: wire.clone(),
    };
    let outside = Outside {
        pipe: theirs,
        door: door.clone(),
        wire: wire.clone(),
    };
    (inside, outside, wire)
}

impl Wire {
    /// From here on nothing more arrives that way, and its reader learns that this is the end.
    pub(super) fn close(&self, way: Way) {
        self.set(way, Course::Closed);
    }

    /// Nothing arrives that way until [`Wire::let_go`].
    pub(super) fn hold(&self, way: Way) {
        self.set(way, Course::Held);
    }

    /// What was held arrives.
    pub(super) fn let_go(&self) {
        for direction in [&self.to_server, &self.to_client] {
            if direction.state().course == Course::Held {
                direction.set(Course::Flows);
            }
        }
    }

    fn set(&self, way: Way, course: Course) {
        if way != Way::ToClient {
            self.to_server.set(course);
        }
        if way != Way::ToServer {
            self.to_client.set(course);
        }
    }
}

impl Direction {
    fn set(&self, course: Course) {
        let mut state = self.state();
        state.course = course;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    fn poll_read(
        &self,
        pipe: &mut DuplexStream,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state();
        state.reader = Some(context.waker().clone());
        if state.course == Course::Held {
            return Poll::Pending;
        }
        let read = Pin::new(pipe).poll_read(context, into);
        if read.is_pending() && state.course == Course::Closed {
            // Nothing read and no error: the end.
            return Poll::Ready(Ok(()));
        }
        read
    }

    fn poll_write(
        &self,
        pipe: &mut DuplexStream,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.state().course == Course::Closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(pipe).poll_write(context, bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Inside {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { pipe, door, wire } = self.get_mut();
        ready!(door.poll_open(context))?;
        wire.to_client.poll_read(pipe, context, into)
    }
}

impl AsyncWrite for Inside {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { pipe, door, wire } = self.get_mut();
        ready!(door.poll_open(context))?;
        wire.to_server.poll_write(pipe, context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.door.poll_open(context))?;
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.door.poll_open(context))?;
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

impl AsyncRead for Outside {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { pipe, door, wire } = self.get_mut();
        if door.loses_sent() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        wire.to_server.poll_read(pipe, context, into)
    }
}

impl AsyncWrite for Outside {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { pipe, wire, .. } = self.get_mut();
        wire.to_client.poll_write(pipe, context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}
