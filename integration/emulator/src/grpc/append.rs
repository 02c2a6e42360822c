//! One `AppendRows` call: its requests to the machine, the machine's outputs back in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigquery_write_proto::wire::{AppendRowsRequest, AppendRowsResponse};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::hold::{LONGEST_MS, Turn};
use super::transport::Line;
use super::{MAX_MESSAGE, Service};
use crate::catalog::Millis;
use crate::machine::{Code, ConnectionId, Delivery, Event, Output, Passage, Refusal, known};

/// Answers held for a client that does not read them.
const ANSWERS: usize = 1024;

/// How a call is told from elsewhere that it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Doors(Arc<Mutex<HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>>>);

/// Something to send, and when it may go.
struct Held {
    turn: Turn,
    what: What,
}

enum What {
    Answer(Box<AppendRowsResponse>),
    Status(Status),
    Reset,
    Cut,
}

struct Conversation {
    service: Service,
    line: Line,
    id: ConnectionId,
    answers: mpsc::Sender<Held>,
    over: oneshot::Receiver<Option<Refusal>>,
}

/// Carries on the call that the machine has opened as `id`.
pub(super) fn answers(
    service: &Service,
    line: Line,
    id: ConnectionId,
    requests: Streaming<AppendRowsRequest>,
) -> BoxStream<'static, Result<AppendRowsResponse, Status>> {
    let (answers, held) = mpsc::channel(ANSWERS);
    let over = service.doors.open(id);
    let conversation = Conversation {
        service: service.clone(),
        line: line.clone(),
        id,
        answers,
        over,
    };
    tokio::spawn(conversation.run(requests));
    let answers = ReceiverStream::new(held).then(move |Held { turn, what }| {
        let line = line.clone();
        async move {
            turn.come().await;
            match what {
                What::Answer(answer) => Ok(*answer),
                What::Status(status) => Err(status),
                What::Reset => Err(line.break_off()),
                What::Cut => line.cut().await,
            }
        }
    });
    answers.boxed()
}

impl Conversation {
    async fn run(mut self, mut requests: Streaming<AppendRowsRequest>) {
        let shared = self.service.shared.clone();
        let mut open = true;
        loop {
            let idle = shared
                .with(|machine| machine.idle_deadline(self.id))
                .unwrap_or(Millis::MAX);
            let wait = u64::try_from(idle.saturating_sub(shared.now()))
                .unwrap_or(0)
                .saturating_add(1);
            let outputs = tokio::select! {
                biased;
                () = self.answers.closed() => break,
                over = &mut self.over => {
                    self.finish(over.ok().flatten(), &Delivery::default()).await;
                    break;
                }
                request = requests.message(), if open => match request {
                    Ok(Some(request)) => {
                        let now = shared.now();
                        shared.with(|machine| machine.append(now, self.id, &request))
                    }
                    Ok(None) => {
                        open = false;
                        shared.with(|machine| machine.half_close(self.id))
                    }
                    Err(status) => {
                        let refusal = unreadable(&status, shared.with(|machine| machine.switches().max_request_bytes));
                        self.finish(Some(refusal), &Delivery::default()).await;
                        break;
                    }
                },
                () = tokio::time::sleep(Duration::from_millis(wait.min(LONGEST_MS))) => {
                    self.service.tick();
                    continue;
                }
            };
            self.service.note_late();
            if !self.send(outputs).await {
                break;
            }
        }
        self.service.doors.forget(self.id);
        shared.with(|machine| machine.lost(self.id));
    }

    /// Sends this connection's own outputs and passes the others on; `false` when the call is over.
    async fn send(&self, outputs: Vec<Output>) -> bool {
        let (own, others) = outputs
            .into_iter()
            .partition(|output| output.connection == self.id);
        self.service.dispatch(others);
        for Output { delivery, event, .. } in own {
            if delivery.go_away {
                self.line.connection().go_away();
            }
            let goes_on = match (delivery.passage, event) {
                (Passage::Never, _) => true,
                (Passage::Reset, _) => self.break_off(What::Reset).await,
                (Passage::Cut, _) => self.break_off(What::Cut).await,
                (Passage::Whole, Event::Answer(answer)) => self.hold(What::Answer(answer), &delivery).await,
                (Passage::Whole, Event::End(refusal)) => self.finish(refusal, &delivery).await,
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// The end, which waits for its turn even if it is a good one.
    async fn finish(&self, refusal: Option<Refusal>, delivery: &Delivery) -> bool {
        let status = refusal.map_or_else(|| Status::ok(""), |refusal| self.service.status(&refusal));
        self.hold(What::Status(status), delivery).await;
        false
    }

    /// No answer comes any more; those before it go first.
    async fn break_off(&self, what: What) -> bool {
        let turn = Turn::default();
        drop(self.answers.send(Held { turn, what }).await);
        false
    }

    async fn hold(&self, what: What, delivery: &Delivery) -> bool {
        let turn = self.service.gate.turn(delivery);
        self.answers.send(Held { turn, what }).await.is_ok()
    }
}

/// Why a request did not reach the machine. To a client that is gone nobody says it.
fn unreadable(status: &Status, limit: u64) -> Refusal {
    match status.code() {
        // Longer than a message may be, which is all that its frame says of it.
        tonic::Code::OutOfRange => known::too_large(format!("more than {MAX_MESSAGE}"), limit),
        tonic::Code::Internal => Refusal::invalid(format!(
            "The request cannot be read as an AppendRowsRequest: {}",
            status.message()
        )),
        tonic::Code::Unimplemented => Refusal::new(Code::Unimplemented, status.message()),
        _ => Refusal::new(Code::Cancelled, status.message()),
    }
}

impl Doors {
    fn open(&self, id: ConnectionId) -> oneshot::Receiver<Option<Refusal>> {
        let (door, over) = oneshot::channel();
        self.lock().insert(id, door);
        over
    }

    pub(super) fn close(&self, id: ConnectionId, refusal: Option<Refusal>) {
        if let Some(door) = self.lock().remove(&id) {
            // The call may have ended by itself in the meantime.
            drop(door.send(refusal));
        }
    }

    fn forget(&self, id: ConnectionId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
