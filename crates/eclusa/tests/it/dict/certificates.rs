//! The DICT requires a client certificate.

use std::sync::Arc;

use super::server::Dict;
use super::{PERSON, compared, lookup};
use crate::http_tls::{Authority, door};
use crate::program::{Program, example};

/// The example's `tls` line works with the files in place and the `#` removed.
#[tokio::test]
async fn the_example_shows_the_certificate_of_the_participant() {
    let (dict, authority, clients) = (Dict::start('H', 1).await, Authority::new(), Authority::new());
    let to = door(dict.address(), &authority, Some(&clients), &["http/1.1"]).await;
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let (certificate, key) = clients.issue("participant");
    let write = |name: &str, pem: &[u8]| std::fs::write(dir.path().join(name), pem).unwrap();
    write("client.pem", certificate.pem().as_bytes());
    write("client.key", key.serialize_pem().as_bytes());
    write("ca.pem", &authority.pem());
    let config = std::fs::read_to_string(example("dict.toml")).unwrap();
    let config = config.replace("# tls = {", "tls = {").replace("127.0.0.1:8080", "127.0.0.1:0");
    let url = format!("https://{to}/api/v2");
    let program = Program::start_in(dir, &config, &[("DICT_URL", &url)]).await;
    assert_eq!(lookup(&program, PERSON, "a@example.com", "E1").await.status, 200);
    compared(&[&program], 1).await;
}
