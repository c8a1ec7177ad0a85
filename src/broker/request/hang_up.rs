//! A connection ended by an operator, by `$saguin/sessions/disconnect`.

use bytes::Bytes;

use super::{Ask, Request};
use crate::broker::connection::Connection;
use crate::broker::counters::Refused;
use crate::broker::packet::Publish;
use crate::broker::publish::text;
use crate::broker::reason::{Reason, Refusal};
use crate::broker::{Broker, lock};

impl Connection {
    /// The payload names the client.
    pub(super) fn asked_hang_up(&self, publish: &Publish) -> Result<Ask, Refusal> {
        let bad = |text: &str| Err(Refusal::new(Reason::ImplementationSpecific, text));
        if !super::is_answerable(publish) {
            return bad("a hang-up is asked for with a Response Topic to be answered on");
        }
        if publish.payload.is_empty() {
            return bad("the payload of a hang-up is the identifier of the client");
        }
        if publish.payload == self.session.client_id.as_bytes() {
            return bad("a client that wants to leave sends a DISCONNECT");
        }
        Ok(Ask::HangUp {
            client_id: Bytes::copy_from_slice(&publish.payload),
        })
    }

    pub(super) fn hang_up(&self, request: &Request, client_id: &Bytes) {
        let word = if self.broker.hang_up(text(client_id)) {
            tracing::info!(
                client = text(client_id),
                by = self.client_id(),
                "hung up by an operator"
            );
            "hung-up"
        } else {
            "no-such-client"
        };
        let outcome = self.tell(request, Bytes::from_static(word.as_bytes()));
        self.conclude_request(request.ticket, outcome);
    }
}

impl Broker {
    /// Ends a client's connection; whether it had one. Its session is kept as for any connection
    /// that ends: only its own connection changes that (invariant 17).
    fn hang_up(&self, client_id: &str) -> bool {
        let session = lock(&self.registry).session(client_id);
        let Some(session) = session else { return false };
        let state = session.lock();
        let Some(link) = &state.link else {
            return false;
        };
        let hung_up = link.handle.close(Refusal::new(
            Reason::AdministrativeAction,
            "an operator ended this connection; the session is kept",
        ));
        if hung_up {
            self.counters
                .refuse(Refused::Disconnect, Reason::AdministrativeAction);
        }
        hung_up
    }
}
