//! Requests that files write: what a data structure is, told in words.
use core::fmt;
use omniheap_core::{
    Access, Align, Coherence, Dependence, Lifetime, Pattern, Privacy, Registration, Request, Spill,
    Substitution, Work, Writer,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// No file of requests is longer.
const LONGEST: u64 = 1 << 20;

/// A request as a file writes it: everything that the policy asks about the data. Only `size` must be there.
///
/// ```
/// use omniheap::placement::{Pattern, WrittenRequest, parse_requests};
/// let text = r#"[{"name": "filter", "size": 1024, "writes": "host-once", "pattern": "broadcast"}]"#;
/// let requests = parse_requests(text)?;
/// let request = requests[0].request();
/// assert_eq!((request.layout.size, request.pattern), (1024, Pattern::Broadcast));
/// # Ok::<(), omniheap::placement::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenRequest {
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Bytes, at least one.
    pub size: u64,
    /// A power of two.
    #[serde(default = "one")]
    pub align: u64,
    /// Writer of the data.
    #[serde(default, with = "by_word")]
    pub writes: Writer,
    /// Reader of the data.
    #[serde(default, with = "by_word")]
    pub reads: Access,
    /// Access pattern of kernels.
    #[serde(default, with = "by_word")]
    pub pattern: Pattern,
    /// Arithmetic of kernels per element.
    #[serde(default, with = "by_word")]
    pub work: Work,
    /// Dependence between reads.
    #[serde(default, with = "by_word")]
    pub dependence: Dependence,
    /// Average reads per byte by one workgroup.
    #[serde(default = "once")]
    pub reuse: u32,
    /// Bytes of it that one group reads, where that is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches: Option<u64>,
    /// Lifetime.
    #[serde(default, with = "by_word")]
    pub lifetime: Lifetime,
    /// Host-device coherence without flushes.
    #[serde(default, with = "by_word")]
    pub coherence: Coherence,
    /// Need of communication libraries to register it.
    #[serde(default, with = "by_word")]
    pub registration: Registration,
    /// Permission to use a substitute region.
    #[serde(default, with = "by_word")]
    pub substitute: Substitution,
    /// Permission to spill to host memory when device memory is full.
    #[serde(default, with = "by_word")]
    pub spill: Spill,
    /// Privacy: secret bytes are cleared when it is freed.
    #[serde(default, with = "by_word")]
    pub privacy: Privacy,
}

const fn one() -> u64 {
    1
}

const fn once() -> u32 {
    1
}

/// Enumerations as words.
mod by_word {
    use omniheap_core::Keyword;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Keyword, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.word())
    }

    pub(super) fn deserialize<'de, T: Keyword, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let word = String::deserialize(from)?;
        T::from_word(&word).ok_or_else(|| {
            let known: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
            D::Error::custom(format!("\"{word}\" is none of {}", known.join(", ")))
        })
    }
}

/// Reason why requests were not read; each names the request, and what it has to be.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The file could not be read.
    Io(io::Error),
    /// The file is too long.
    TooLong {
        /// Bytes that it has.
        size: u64,
        /// Bytes that a file of requests may have.
        limit: u64,
    },
    /// The text is no list of requests, a key or word is unknown, or a number is none: NaN, negative, broken or too
    /// large.
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The error.
        why: String,
    },
    /// A request asks for no bytes.
    ZeroSize {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// A request's alignment is no power of two.
    InvalidAlignment {
        /// Its place in the list, from 0.
        index: usize,
        /// Requested value.
        align: u64,
    },
    /// A request, rounded up to its alignment, has more bytes than 64 bits count.
    SizeOverflow {
        /// Its place in the list, from 0.
        index: usize,
        /// Requested value.
        size: u64,
        /// Alignment that the size is rounded up to.
        align: u64,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(
                f,
                "the requests could not be read: {error}; check the path and its permissions"
            ),
            Self::TooLong { size, limit } => {
                write!(f, "{size} bytes; a file of requests has at most {limit}")
            }
            Self::Syntax { line, column, why } => write!(
                f,
                "line {line}, column {column}: {why}; a list of requests is expected, such as [{{\"size\": 4096}}]"
            ),
            Self::ZeroSize { index } => {
                write!(f, "request {index}: size is 0; ask for at least one byte")
            }
            Self::InvalidAlignment { index, align } => {
                write!(f, "request {index}: align is {align}, not a power of two")
            }
            Self::SizeOverflow { index, size, align } => write!(
                f,
                "request {index}: size is {size}, and rounded up to {align} it is above the limit of {} bytes",
                u64::MAX
            ),
        }
    }
}

impl core::error::Error for RequestError {}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl WrittenRequest {
    /// Refuses what no request can be; `index` is its place in a list, for the error.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `InvalidAlignment`, `SizeOverflow`.
    pub fn check(&self, index: usize) -> Result<(), RequestError> {
        let Self { size, align, .. } = *self;
        if size == 0 {
            return Err(RequestError::ZeroSize { index });
        }
        let power = Align::new(align).ok_or(RequestError::InvalidAlignment { index, align })?;
        let rounded = power.up(size);
        rounded.map(|_| ()).ok_or(RequestError::SizeOverflow { index, size, align })
    }

    /// Returns the request; one whose alignment is no power of two is aligned to one byte.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let align = Align::new(self.align).unwrap_or(Align::ONE);
        let mut request = Request::new(self.size)
            .align(align)
            .writer(self.writes)
            .access(self.reads)
            .pattern(self.pattern)
            .work(self.work)
            .dependence(self.dependence)
            .reuse(self.reuse)
            .lifetime(self.lifetime);
        request.touches = self.touches;
        request.coherence = self.coherence;
        request.substitution = self.substitute;
        request.spill = self.spill;
        request.name = self.name.as_deref();
        if self.registration == Registration::Needed {
            request = request.registrable();
        }
        if self.privacy == Privacy::Secret { request.secret() } else { request }
    }
}

/// Reads a file of requests: a JSON list, at most 1 MiB.
///
/// # Errors
///
/// [`RequestError`], which says which request is wrong and why.
pub fn read_requests(path: &Path) -> Result<Vec<WrittenRequest>, RequestError> {
    let file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    if size > LONGEST {
        return Err(RequestError::TooLong { size, limit: LONGEST });
    }
    // A device or a pipe says that it has no bytes, whatever comes out of it.
    read_requests_from(file)
}

/// Reads a JSON list of requests from a stream, such as standard input.
///
/// # Errors
///
/// As for [`read_requests`].
pub fn read_requests_from(source: impl Read) -> Result<Vec<WrittenRequest>, RequestError> {
    let mut bytes = Vec::new();
    let read = source.take(LONGEST + 1).read_to_end(&mut bytes)? as u64;
    if read > LONGEST {
        return Err(RequestError::TooLong { size: read, limit: LONGEST });
    }
    parse(&bytes)
}

/// Reads a JSON list of requests.
///
/// # Errors
///
/// As for [`read_requests`].
pub fn parse_requests(text: &str) -> Result<Vec<WrittenRequest>, RequestError> {
    parse(text.as_bytes())
}

fn parse(bytes: &[u8]) -> Result<Vec<WrittenRequest>, RequestError> {
    let requests: Vec<WrittenRequest> = serde_json::from_slice(bytes).map_err(|error| {
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or(&why).to_owned();
        RequestError::Syntax { line: error.line(), column: error.column(), why }
    })?;
    requests.iter().enumerate().try_for_each(|(index, request)| request.check(index))?;
    Ok(requests)
}

#[cfg(test)]
mod tests;
