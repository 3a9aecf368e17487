//! Restores gates from records, and the leases that hold slots and places.

use super::{Gates, Pass};

impl Gates {
    /// Takes a slot for a lease found at start-up, and its place in the window if it still holds one.
    pub(crate) fn restore_call(&mut self, pass: Pass) {
        self.in_flight += 1;
        if !pass.answered {
            self.window.take();
        }
    }

    /// Reverts [`Gates::restore_call`].
    pub(crate) fn remove_call(&mut self, pass: Pass) {
        self.release_slot();
        if !pass.answered {
            self.window.release();
        }
    }

    /// Replaces the state by the stored one; keeps the running calls, which are already counted.
    pub(crate) fn restore(&mut self, stored: Gates) {
        let old = std::mem::replace(self, stored);
        self.in_flight = old.in_flight;
        self.window.restore(&old.window);
    }
}
