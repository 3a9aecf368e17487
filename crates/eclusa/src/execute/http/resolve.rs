//! Resolves host names, and checks which addresses may be called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

use super::body::BoxError;

/// Resolves a name each time a connection is made, so that the checked address is the one that is connected to.
#[derive(Clone, Default)]
pub(crate) struct Resolver {
    /// If set, only public addresses and these may be called.
    only: Option<Arc<[IpAddr]>>,
}

impl Resolver {
    /// Returns only public addresses and those of `besides`.
    pub(crate) fn public(besides: Arc<[IpAddr]>) -> Self {
        Self { only: Some(besides) }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, only) = (GaiResolver::new().call(name), self.only.clone());
        Box::pin(async move {
            let found: Vec<_> = found.await?.collect();
            let allowed = |address: &SocketAddr| {
                only.as_ref().is_none_or(|besides| {
                    is_public(address.ip()) || besides.contains(&address.ip().to_canonical())
                })
            };
            let callable: Vec<_> = found.iter().copied().filter(allowed).collect();
            if callable.is_empty() && !found.is_empty() {
                return Err("the host has only private addresses".into());
            }
            Ok(callable.into_iter())
        })
    }
}

/// Whether an address is a public one on the Internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || matches!((a, b, c), (0 | 224..=255, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _));
    !special
}

/// Addresses that embed an IPv4 address do not count as public: the embedded one may be private.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let global = address.segments()[0] & 0xe000 == 0x2000;
    let special = matches!(address.segments(), [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002 | 0x3fff, ..]);
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_public_addresses_are_distinguished() {
        let public = |text: &str| is_public(text.parse().unwrap());
        for address in ["1.1.1.1", "93.184.216.34", "100.63.0.1", "172.32.0.1", "2606:4700::1111", "2a00::1"]
        {
            assert!(public(address), "{address}");
        }
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
        ];
        for address in private {
            assert!(!public(address), "{address}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_private_address_is_refused_unless_the_address_is_listed() {
        let look = async |mut resolver: Resolver| {
            let name: Name = "localhost".parse().unwrap();
            resolver.call(name).await.map(|found| found.map(|address| address.ip()).collect::<Vec<_>>())
        };
        let home = IpAddr::from([127, 0, 0, 1]);
        assert!(look(Resolver::default()).await.unwrap().contains(&home));
        let refused = look(Resolver::public([].into())).await.unwrap_err();
        assert!(refused.to_string().contains("private"), "{refused}");
        assert_eq!(look(Resolver::public([home].into())).await.unwrap(), [home]);
    }
}
