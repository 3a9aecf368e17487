//! The payload of a job that delivers a callback.

use super::LayoutError;
use super::convert::{Layout, decode, encode, layout_struct};
use super::view::JobViewLayout;
use crate::engine::Callback;
use crate::job::Payload;

/// The version of the layout in this file, which contains views of jobs. No other payload starts with this byte.
const VERSION: u8 = 0xc1;

layout_struct!(CallbackLayout<'a> = Callback { url: &'a str, job: JobViewLayout<'a> });

impl Callback {
    /// Encodes it as the payload of a job.
    pub fn encode(&self) -> Payload {
        let mut bytes = Vec::new();
        encode(VERSION, &CallbackLayout::from_domain(self), &mut bytes);
        bytes.into()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(payload: &[u8]) -> Result<Self, LayoutError> {
        decode::<CallbackLayout<'_>>(VERSION, payload)?.into_domain()
    }
}
