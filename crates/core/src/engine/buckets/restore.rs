//! Buckets as the records have them, and what uses them.

use std::sync::Arc;

use super::Buckets;
use crate::gate::{Bucket, BucketSpec};
use crate::table::BucketIx;
use crate::time::Time;
use crate::tokens::Tokens;

impl Buckets {
    /// The bucket with `key` as it is stored, with the users that are counted already.
    pub(crate) fn restore(&mut self, key: Arc<str>, spec: BucketSpec, bucket: Bucket) {
        let Some(index) = self.find(&key) else {
            self.add(key, spec, bucket);
            return;
        };
        let state = &mut self.table[index];
        let held = state.bucket.held;
        (state.spec, state.bucket) = (spec, bucket);
        state.bucket.hold_again(&spec, held);
    }

    /// Removes a bucket that the records say is forgotten; `false` if something uses it.
    pub(crate) fn restore_gone(&mut self, key: &str) -> bool {
        let Some(index) = self.find(key) else { return true };
        if self.table[index].users > 0 {
            return false;
        }
        if let Some(state) = self.table.remove(index) {
            self.by_key.remove(&state.key);
            state.forget_at.map(|at| self.idle.remove(&(at, index)));
        }
        true
    }

    /// Holds what a lease holds that was given before, for which the balance was lowered already.
    pub(crate) fn hold_again(&mut self, index: BucketIx, tokens: Tokens) {
        let state = &mut self.table[index];
        state.users += 1;
        state.bucket.hold_again(&state.spec, tokens);
    }

    /// The opposite of [`Buckets::hold_again`].
    pub(crate) fn unhold(&mut self, index: BucketIx, tokens: Tokens) {
        let state = &mut self.table[index];
        state.bucket.held = state.bucket.held - tokens;
        self.unuse(index);
    }

    /// The opposite of [`Buckets::add_user`], where a restored bucket was not looked at yet.
    pub(crate) fn unuse(&mut self, index: BucketIx) {
        self.table[index].users -= 1;
        self.forget_at(index, Time::default());
    }
}
