//! The arguments for TLS and tokens: the certificate that `serve` shows, the servers that the other commands trust, and the
//! token that they have.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use exec_transport::token::{Exposure, read_secret_file};
use exec_transport::{
    BindError, CertificateSource, ClientCertificate, Fingerprint, ListenUrl, ServerTlsOptions, TlsOptions,
    TrustedServers,
};

use super::values::duration;

/// The file in the state folder that keeps a self-signed certificate and its key.
const KEPT_CERTIFICATE: &str = "tls-self-signed.pem";

/// The certificate of `wss://` listeners.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct ServerTlsArgs {
    /// PEM file with the certificate of wss:// listeners, and the chain up to its authority
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_self_signed")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Make a certificate; clients trust it by its fingerprint, which is printed on stderr. With --state-dir it is kept
    /// there and stays the same
    #[arg(long)]
    pub(crate) tls_self_signed: bool,
    /// PEM file with the authorities of client certificates; a client without one of theirs is refused
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
}

impl ServerTlsArgs {
    /// What the listeners need; `None` if none of them is `wss://`.
    pub(crate) fn options(
        &self,
        urls: &[ListenUrl],
        state_dir: Option<&PathBuf>,
    ) -> anyhow::Result<Option<ServerTlsOptions>> {
        let secure: Vec<&ListenUrl> = urls.iter().filter(|url| matches!(url, ListenUrl::SecureWebSocket(_))).collect();
        let certificate = match (&self.tls_cert, &self.tls_key, self.tls_self_signed) {
            (Some(certificate), Some(key), _) => {
                Some(CertificateSource::Files { certificate: certificate.clone(), key: key.clone() })
            }
            (_, _, true) => {
                let addresses = secure.iter().filter_map(|url| url.socket_address()).map(|address| address.ip());
                let kept_in = state_dir.map(|state| state.join(KEPT_CERTIFICATE));
                Some(CertificateSource::SelfSigned { addresses: addresses.collect(), kept_in })
            }
            (_, _, false) => None,
        };
        match (secure.first(), certificate) {
            (Some(_), Some(certificate)) => {
                Ok(Some(ServerTlsOptions { certificate, client_ca: self.tls_client_ca.clone() }))
            }
            (Some(url), None) => Err(BindError::CertificateMissing { url: ListenUrl::clone(url) }.into()),
            (None, None) if self.tls_client_ca.is_none() => Ok(None),
            // Whoever gives one of these expects that connections are encrypted.
            (None, _) => anyhow::bail!("--tls flags are for `wss://` listeners, and there is none: see --listen"),
        }
    }
}

/// Whom to trust, and who we are there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct ConnectArgs {
    /// PEM file with the authorities that a wss:// server is trusted by, instead of the machine's [env:
    /// EXEC_SERVER_TLS_CA]
    #[arg(long, value_name = "FILE", conflicts_with = "tls_fingerprint")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Trust the wss:// server with this certificate and no other, as `serve` prints it: sha256:HEX [env:
    /// EXEC_SERVER_TLS_FINGERPRINT]
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) tls_fingerprint: Option<Fingerprint>,
    /// PEM file with our certificate, for a server that asks for one [env: EXEC_SERVER_TLS_CLIENT_CERT]
    #[arg(long, value_name = "FILE", requires = "tls_client_key")]
    pub(crate) tls_client_cert: Option<PathBuf>,
    /// PEM file with its private key [env: EXEC_SERVER_TLS_CLIENT_KEY]
    #[arg(long, value_name = "FILE", requires = "tls_client_cert")]
    pub(crate) tls_client_key: Option<PathBuf>,
    /// File with the token that the server asks for, if environments.toml has none; readable for nobody else [env:
    /// EXEC_SERVER_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a connection that broke is looked for [default: reconnect_timeout_sec of environments.toml, else 25s; 5s for
    /// a program] [env: EXEC_SERVER_RECONNECT_TIMEOUT]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) reconnect_timeout: Option<Duration>,
}

impl ConnectArgs {
    /// The token of the flag, else the one that is configured, else that of the variable.
    pub(crate) fn token(
        &self,
        configured: Option<String>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> anyhow::Result<Option<String>> {
        let named = variable("EXEC_SERVER_TOKEN_FILE").filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = match (&self.token_file, configured, named) {
            (Some(path), _, _) => path.clone(),
            (None, Some(token), _) => return Ok(Some(token)),
            (None, None, Some(path)) => path,
            (None, None, None) => return Ok(None),
        };
        let token = read_secret_file(&path, Exposure::Refused)?.content;
        let token = String::from_utf8(token).ok().filter(|token| !token.is_empty());
        Ok(Some(token.with_context(|| format!("there is no token in {}", path.display()))?))
    }

    /// How long a broken connection is looked for, if the flag or the variable says so.
    pub(crate) fn reconnect_timeout(
        &self,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> anyhow::Result<Option<Duration>> {
        const NAME: &str = "EXEC_SERVER_RECONNECT_TIMEOUT";
        match (self.reconnect_timeout, variable(NAME).filter(|value| !value.is_empty())) {
            (Some(timeout), _) => Ok(Some(timeout)),
            (None, None) => Ok(None),
            (None, Some(value)) => {
                let timeout = duration(&value.to_string_lossy());
                timeout.map(Some).map_err(|why| anyhow::anyhow!("{NAME} is of no use: {why}"))
            }
        }
    }

    /// What the flags say; what they do not say, the variables. These are for commands that find their server by a note
    /// or by environments.toml, which cannot say it: Codex reads that file too, and refuses keys that it does not know.
    pub(crate) fn options(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> anyhow::Result<TlsOptions> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let trust = match (&self.tls_ca, self.tls_fingerprint) {
            (_, Some(fingerprint)) => TrustedServers::Fingerprint(fingerprint),
            (Some(path), None) => TrustedServers::Ca(path.clone()),
            (None, None) => match (set("EXEC_SERVER_TLS_FINGERPRINT"), set("EXEC_SERVER_TLS_CA")) {
                (Some(_), Some(_)) => anyhow::bail!(
                    "EXEC_SERVER_TLS_FINGERPRINT and EXEC_SERVER_TLS_CA exclude each other: unset one of them"
                ),
                (Some(fingerprint), None) => {
                    let fingerprint = fingerprint.to_string_lossy().parse();
                    TrustedServers::Fingerprint(fingerprint.context("EXEC_SERVER_TLS_FINGERPRINT is of no use")?)
                }
                (None, Some(path)) => TrustedServers::Ca(path.into()),
                (None, None) => TrustedServers::System,
            },
        };
        let certificate = self.tls_client_cert.clone().or_else(|| set("EXEC_SERVER_TLS_CLIENT_CERT").map(Into::into));
        let key = self.tls_client_key.clone().or_else(|| set("EXEC_SERVER_TLS_CLIENT_KEY").map(Into::into));
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            _ => anyhow::bail!("a client certificate needs its key, and a key its certificate: set both variables"),
        };
        Ok(TlsOptions { trust, certificate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(digit: &str) -> Fingerprint {
        format!("sha256:{}", digit.repeat(64)).parse().expect("64 digits")
    }

    #[test]
    fn flags_come_before_variables_and_variables_before_the_machine() {
        let pinned = fingerprint("b").to_string();
        let variable = |name: &str| (name == "EXEC_SERVER_TLS_FINGERPRINT").then(|| pinned.clone().into());
        let flags = ConnectArgs { tls_fingerprint: Some(fingerprint("a")), ..ConnectArgs::default() };
        let trust = |args: &ConnectArgs, variable: &dyn Fn(&str) -> Option<OsString>| {
            args.options(variable).expect("well formed").trust
        };
        assert_eq!(trust(&flags, &variable), TrustedServers::Fingerprint(fingerprint("a")));
        let ca = ConnectArgs { tls_ca: Some("/ca".into()), ..ConnectArgs::default() };
        assert_eq!(trust(&ca, &variable), TrustedServers::Ca("/ca".into()));
        assert_eq!(trust(&ConnectArgs::default(), &variable), TrustedServers::Fingerprint(fingerprint("b")));
        assert_eq!(trust(&ConnectArgs::default(), &|_| None), TrustedServers::System);
    }

    #[test]
    fn variables_that_contradict_each_other_are_refused() {
        for names in [
            &["EXEC_SERVER_TLS_FINGERPRINT", "EXEC_SERVER_TLS_CA"][..],
            &["EXEC_SERVER_TLS_FINGERPRINT"],
            &["EXEC_SERVER_TLS_CLIENT_CERT"],
            &["EXEC_SERVER_TLS_CLIENT_KEY"],
        ] {
            let variable = |name: &str| names.contains(&name).then(|| "x".into());
            assert!(ConnectArgs::default().options(&variable).is_err(), "{names:?}");
        }
    }
}
