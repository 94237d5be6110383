//! Owns what the node says unasked: sandboxes that ended. Every connected server hears it; what happens while none is
//! connected waits, bounded. A server that falls behind is cut off and learns the truth from `List`.

use cofferdam_core::SandboxId;
use cofferdam_proto::node::EndReason;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Events that wait for a server. Older ones go first; `List` tells about those too.
const WAITING_MAX: usize = 4096;
/// Events that wait for one server to read them.
const QUEUE_MAX: usize = 1024;

/// One sandbox ended without the server asking for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) sandbox: SandboxId,
    pub(crate) reason: EndReason,
}

/// Gives events to whoever listens.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    queues: Vec<mpsc::Sender<Ended>>,
    waiting: VecDeque<Ended>,
}

impl Events {
    /// Everything from now on, and what waited. The stream ends when the listener is too slow.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Ended> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, receiver) = mpsc::channel(QUEUE_MAX + WAITING_MAX);
        for event in std::mem::take(&mut state.waiting) {
            if sender.try_send(event).is_err() {
                break;
            }
        }
        state.queues.push(sender);
        receiver
    }

    pub(crate) fn publish(&self, event: &Ended) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A full or closed queue is dropped, which ends that listener's stream.
        state.queues.retain(|queue| queue.try_send(event.clone()).is_ok());
        if state.queues.is_empty() {
            state.waiting.push_back(event.clone());
            if state.waiting.len() > WAITING_MAX {
                state.waiting.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> Ended {
        Ended { sandbox: format!("i{number}").parse().unwrap(), reason: EndReason::Expired }
    }

    #[test]
    fn what_happens_while_nobody_listens_waits_and_is_bounded() {
        let events = Events::default();
        for number in 0..WAITING_MAX + 10 {
            events.publish(&event(number));
        }
        let mut first = events.listen();
        assert_eq!(first.try_recv().unwrap(), event(10));
        assert_eq!(first.len(), WAITING_MAX - 1);
        assert!(events.listen().try_recv().is_err());
    }

    #[test]
    fn a_listener_that_does_not_read_is_cut_off_and_the_others_are_not() {
        let events = Events::default();
        let slow = events.listen();
        let mut quick = events.listen();
        for number in 0..2 * (WAITING_MAX + QUEUE_MAX) {
            events.publish(&event(number));
            assert_eq!(quick.try_recv().unwrap(), event(number));
        }
        assert!(slow.is_closed() || slow.len() == WAITING_MAX + QUEUE_MAX);
        assert_eq!(events.state.lock().unwrap().queues.len(), 1);
    }
}
