//! The rules as functions read them: fields of the hashes that hold the state of lanes and upstreams, under a name that tells
//! them from the rules of other processes.

use eclusa_core::{LaneSpec, Spec};
use redis::Pipeline;
use rmp_serde::encode::Error;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::keys::Keys;

/// Packed rules, by name of the lane or upstream.
pub(super) struct Rules {
    /// What the names of their fields begin with.
    pub(super) version: String,
    lanes: Vec<(String, Vec<u8>)>,
    upstreams: Vec<(String, Vec<u8>)>,
}

#[derive(Serialize)]
struct LaneRule<'a> {
    /// Where it stands among the lanes, which orders what several of them are owed.
    index: usize,
    spec: &'a LaneSpec,
}

impl Rules {
    pub(super) fn new(spec: &Spec) -> Result<Self, Error> {
        let lane = |(index, spec): (usize, &LaneSpec)| {
            Ok((spec.name.to_string(), rmp_serde::to_vec_named(&LaneRule { index, spec })?))
        };
        let lanes = spec.lanes().iter().enumerate().map(lane).collect::<Result<Vec<_>, Error>>()?;
        let upstreams = spec.upstreams().iter();
        let upstreams =
            upstreams.map(|rule| Ok((rule.name.to_string(), rmp_serde::to_vec_named(&rule.gates)?)));
        let upstreams = upstreams.collect::<Result<Vec<_>, Error>>()?;
        let version = format!("{:016x}", xxh3_64(&rmp_serde::to_vec(&(&lanes, &upstreams))?));
        Ok(Self { version, lanes, upstreams })
    }

    /// Makes them known to a server.
    pub(super) fn registration(&self, keys: &Keys) -> Pipeline {
        let mut commands = redis::pipe();
        for (hash, rules) in [(keys.lanes(), &self.lanes), (keys.upstreams(), &self.upstreams)] {
            for (name, packed) in rules {
                commands.hset(&hash, format!("{}/{name}", self.version), packed).ignore();
            }
        }
        commands
    }
}
