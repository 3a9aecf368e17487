//! Credentials of AWS, and the file of AWS's own tools: `~/.aws/credentials`.

use std::fmt;

use super::types::Secret;

/// The credentials that sign requests.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The id of the key; sent with every request.
    pub access_key_id: String,
    /// The signing key; never sent.
    pub secret_access_key: Secret,
    /// Sent with every request if the key is temporary.
    pub session_token: Option<Secret>,
}

/// Hides everything: the id is not secret, but identifies an account.
impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsCredentials(…)")
    }
}

/// The credentials of one profile of a file, or what is wrong with the file, without quoting it.
pub(crate) fn credentials_of_profile(text: &str, profile: &str) -> Result<AwsCredentials, String> {
    let (mut found, mut within) = (false, false);
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            within = is_profile(name.0, profile);
            found |= within;
            continue;
        }
        // An indented line belongs to the setting before it; no such setting is needed here.
        let comment = trimmed.is_empty() || trimmed.starts_with(['#', ';']);
        if !within || comment || line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((name, value)) = trimmed.split_once('=') else { continue };
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        match name.trim().to_ascii_lowercase().as_str() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(AwsCredentials {
            access_key_id: id.to_owned(),
            secret_access_key: Secret::new(secret),
            session_token: token.map(Secret::new),
        }),
        _ if !found => Err(format!("has no profile `{profile}`")),
        (None, _) => Err(format!("has no `aws_access_key_id` in profile `{profile}`")),
        (_, None) => Err(format!("has no `aws_secret_access_key` in profile `{profile}`")),
    }
}

/// `[name]`, or as in `~/.aws/config`, `[profile name]`.
fn is_profile(section: &str, profile: &str) -> bool {
    let section = section.trim();
    section == profile || section.strip_prefix("profile").is_some_and(|name| name.trim_start() == profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# of the team
[default]
aws_access_key_id = AKIDDEFAULT
aws_secret_access_key=default/secret=
region = us-east-1
s3 =
  aws_access_key_id = AKIDNESTED

[mail]
; rotated daily
AWS_ACCESS_KEY_ID = AKIDMAIL
aws_secret_access_key = mail+secret
aws_session_token = mail-token
[profile half]
aws_access_key_id = AKIDHALF
aws_secret_access_key =
";

    fn read(profile: &str) -> (String, String, Option<String>) {
        let AwsCredentials { access_key_id, secret_access_key, session_token } =
            credentials_of_profile(FILE, profile).unwrap();
        let token = session_token.map(|token| token.reveal().to_owned());
        (access_key_id, secret_access_key.reveal().to_owned(), token)
    }

    #[test]
    fn only_the_named_profile_is_read() {
        assert_eq!(read("default"), ("AKIDDEFAULT".into(), "default/secret=".into(), None));
        assert_eq!(read("mail"), ("AKIDMAIL".into(), "mail+secret".into(), Some("mail-token".into())));
    }

    #[test]
    fn what_is_missing_is_named() {
        let problem = |profile| credentials_of_profile(FILE, profile).unwrap_err();
        assert_eq!(problem("other"), "has no profile `other`");
        assert_eq!(problem("half"), "has no `aws_secret_access_key` in profile `half`");
        assert_eq!(
            credentials_of_profile("[a]\n", "a").unwrap_err(),
            "has no `aws_access_key_id` in profile `a`"
        );
    }
}
