//! Patterns of hosts: `example.com`, `*.example.com` (all below it), `**.example.com` (it and all below it), `*`.

use super::Host;

/// A pattern that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    reach: PatternScope,
    /// In lower case, without a port; may have `*` (any characters, dots too) and `?` (one) in it.
    name: String,
}

/// What of a name's tree is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternScope {
    Name,
    Below,
    NameAndBelow,
}

/// A pattern that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("a pattern of hosts is empty")]
    Empty,
    #[error("the pattern {0:?} has characters that no host has")]
    Syntax(String),
    #[error("the pattern {0:?} has two stars that are not `**.` at its beginning")]
    RepeatedWildcard(String),
    #[error("the pattern {0:?} has brackets that are not around an IPv6 address")]
    Brackets(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let trimmed = text.trim();
        if trimmed.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '\\' | '{' | '}')) {
            return Err(BadPattern::Syntax(trimmed.to_owned()));
        }
        let (reach, rest) = match (trimmed.strip_prefix("**."), trimmed.strip_prefix("*.")) {
            (Some(rest), _) => (PatternScope::NameAndBelow, rest),
            (None, Some(rest)) => (PatternScope::Below, rest),
            (None, None) => (PatternScope::Name, trimmed),
        };
        let name = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((inner, port)) if port.is_empty() || port.starts_with(':') => inner,
            Some(_) => return Err(BadPattern::Brackets(trimmed.to_owned())),
            // One colon is before a port, several are in an address.
            None => rest.split_once(':').filter(|(_, port)| !port.contains(':')).map_or(rest, |(name, _)| name),
        };
        let is_address = name.split('%').next().is_some_and(|address| address.parse::<core::net::Ipv6Addr>().is_ok());
        let had_brackets = rest.starts_with('[');
        if name.contains(['[', ']']) || (had_brackets && !is_address && name != "*") {
            return Err(BadPattern::Brackets(trimmed.to_owned()));
        }
        let name = Host::normalized(name);
        if name.is_empty() {
            return Err(BadPattern::Empty);
        }
        if name.contains("**") {
            return Err(BadPattern::RepeatedWildcard(trimmed.to_owned()));
        }
        Ok(Self { reach, name })
    }

    pub fn matches_everything(&self) -> bool {
        self.name == "*" && self.reach != PatternScope::Below
    }

    /// Whether it is meant for this host and no other.
    pub fn names(&self, host: &str) -> bool {
        self.reach == PatternScope::Name && !self.name.contains(['*', '?']) && self.name == host
    }

    /// `host` is in lower case, without dots at its end.
    pub fn matches(&self, host: &str) -> bool {
        let below = || {
            // At least one character stands before the dot.
            let dots = host.char_indices().skip(1).filter(|(_, c)| *c == '.');
            dots.into_iter().any(|(at, _)| wildcard_match(&self.name, &host[at + 1..]))
        };
        match self.reach {
            PatternScope::Name => wildcard_match(&self.name, host),
            PatternScope::Below => below(),
            PatternScope::NameAndBelow => wildcard_match(&self.name, host) || below(),
        }
    }
}

/// Without recursion, so that no pattern takes more than the product of both lengths.
fn wildcard_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut here) = (0, 0);
    // Where the last star is, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while here < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(b'?') => (at, here) = (at + 1, here + 1),
            Some(byte) if *byte == text[here] => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, here) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str) -> bool {
        HostPattern::parse(pattern).expect(pattern).matches(host)
    }

    #[test]
    fn patterns_match_as_those_of_codex_do() {
        let cases = [
            ("*.pub.test", "pub.test", false),
            ("*.pub.test", "a.pub.test", true),
            ("*.pub.test", "b.a.pub.test", true),
            ("*.pub.test", ".pub.test", false),
            ("**.pub.test", "pub.test", true),
            ("**.pub.test", "b.a.pub.test", true),
            ("**.pub.test", "xpub.test", false),
            ("*", "pub.test", true),
            ("[*]", "pub.test", true),
            ("p*.test", "pub.test", true),
            ("p*.test", "a.pub.test", false),
            ("a*", "a.pub.test", true),
            ("*pub.test", "a.pub.test", true),
            ("a.*.test", "a.pub.test", true),
            ("*.*", "pub.test", true),
            ("*.*", "localhost", false),
            ("?ub.test", "pub.test", true),
            ("PUB.test.", "pub.test", true),
            ("pub.test:7799", "pub.test", true),
            (" pub.test ", "pub.test", true),
            (".pub.test", "a.pub.test", false),
            ("93.184.216.*", "93.184.216.34", true),
            ("[::1]", "::1", true),
            ("[::1]:80", "::1", true),
            ("region*.v2.test", "region1.v2.test", true),
            ("region*.v2.test", "region.v2.test", true),
            ("region*.v2.test", "xregion.v2.test", false),
        ];
        for (pattern, host, expected) in cases {
            assert_eq!(matches(pattern, host), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn patterns_that_codex_refuses_are_refused_for_the_same_reason() {
        type Reason = fn(String) -> BadPattern;
        let cases: [(&[&str], Reason); 3] = [
            (
                &["http://pub.test", "{pub,x}.test", "93.184.216.0/24", "a b.test", "a\\b", "*. pub.test"],
                BadPattern::Syntax,
            ),
            (&["**", "***", "*.**.test", "a**.test"], BadPattern::RepeatedWildcard),
            (&["[", "p[u]b.test", "[::1", "::1]", "[*].test", "p*[", "[x]"], BadPattern::Brackets),
        ];
        for (texts, reason) in cases {
            for text in texts {
                assert_eq!(HostPattern::parse(text), Err(reason((*text).to_owned())));
            }
        }
        for text in ["", " ", "*.", "**.", ".", "..", "**.:80"] {
            assert_eq!(HostPattern::parse(text), Err(BadPattern::Empty), "{text:?}");
        }
        for text in
            ["a,b.test", "a!b", "a:b:c", "::1", "fe80::1%lo", "a%b", "-a", "*.[::1]", "a..b", "*:80", "*.localhost"]
        {
            assert!(HostPattern::parse(text).is_ok(), "{text}");
        }
    }
}
