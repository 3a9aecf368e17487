//! Restoring buckets and their users.

use std::sync::Arc;

use super::Buckets;
use crate::gate::{Bucket, BucketSpec};
use crate::table::BucketIx;
use crate::time::Time;
use crate::tokens::Tokens;

impl Buckets {
    /// Sets the bucket with `key` as stored, and keeps the users that are already counted.
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

    /// Removes a bucket that is forgotten according to the journal; `false` if something uses it.
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

    /// Adds the hold of a restored lease. The stored balance is already reduced by it.
    pub(crate) fn hold_again(&mut self, index: BucketIx, tokens: Tokens) {
        let state = &mut self.table[index];
        state.users += 1;
        state.bucket.hold_again(&state.spec, tokens);
    }

    /// The opposite of [`Buckets::hold_again`].
    pub(crate) fn unhold(&mut self, index: BucketIx, tokens: Tokens) {
        let state = &mut self.table[index];
        state.bucket.held = state.bucket.held - tokens;
        self.drop_user(index);
    }

    /// The opposite of [`Buckets::add_user`], without scheduling the bucket to be forgotten.
    pub(crate) fn drop_user(&mut self, index: BucketIx) {
        self.table[index].users -= 1;
        self.forget_at(index, Time::default());
    }
}
