//! The protocol: one packet is one frame, a header of eight bytes and whole numbers of eight bytes, little-endian.
#![forbid(unsafe_code)]

/// Version of the protocol. Another version is refused before anything else of a frame is read.
pub const VERSION: u16 = 2;
/// Bytes of the longest frame.
pub const MAX_FRAME: usize = 64 << 10;
/// Tenants in one frame of a list; with more, several frames follow each other.
pub const LISTED: usize = 500;

const MAGIC: [u8; 4] = *b"OMHA";
const HEADER: usize = 8;
const TENANT_FIELDS: usize = 10;
/// Words of a name, and of contents.
const NAME_FIELDS: usize = 8;
const CONTENTS_FIELDS: usize = 9;
const PUBLICATION_FIELDS: usize = NAME_FIELDS + 4;

/// Descriptors of one publication.
pub const PIECES: u64 = 64;

/// Why a frame was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The sender speaks another version.
    #[error("protocol version {0}, not {VERSION}; use the same omniheap on both sides")]
    Version(u16),
    /// Not a frame of this protocol.
    #[error("not a frame of this protocol")]
    Malformed,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u64)]
#[non_exhaustive]
pub enum Refusal {
    /// Others hold the memory, and the tenant has its share.
    #[error("the device is full and the tenant has its share")]
    Shortage = 1,
    /// The tenant's quota.
    #[error("over the tenant's quota; free memory or ask for a larger quota")]
    OverQuota = 2,
    /// More than the device has.
    #[error("more than the device has")]
    Never = 3,
    /// The tenant did not return what it was pressed for.
    #[error("the tenant owes memory that it was asked to return; free memory first")]
    Debtor = 4,
    /// Too many requests at once, or too many tenants.
    #[error("too many requests or tenants at once")]
    TooMany = 5,
    /// Reserves of all tenants do not fit.
    #[error("the tenant's reserve does not fit beside those of the others")]
    Reserve = 6,
    /// The caller may not do that.
    #[error("not permitted; run as root or as the arbiter's user")]
    Forbidden = 7,
    /// There is no such tenant.
    #[error("no tenant has this process id")]
    NoTenant = 8,
    /// Zero bytes, or more given back than was held.
    #[error("the request contradicts the arbiter's books")]
    Contradiction = 9,
    /// The name is published already.
    #[error("something is published under this name; withdraw it first, or choose another name")]
    Published = 10,
    /// Nothing is published under the name that this user may attach.
    #[error("nothing is published under this name for this user; see may_attach in the policy")]
    NotPublished = 11,
    /// The arbiter cannot see the process.
    #[error(
        "the arbiter is in another process namespace; run it outside of containers, or with hostPID"
    )]
    Unseen = 12,
}

impl Refusal {
    const ALL: [Self; 12] = [
        Self::Shortage,
        Self::OverQuota,
        Self::Never,
        Self::Debtor,
        Self::TooMany,
        Self::Reserve,
        Self::Forbidden,
        Self::NoTenant,
        Self::Contradiction,
        Self::Published,
        Self::NotPublished,
        Self::Unseen,
    ];

    fn of(code: u64) -> Result<Self, FrameError> {
        Self::ALL.into_iter().find(|each| *each as u64 == code).ok_or(FrameError::Malformed)
    }
}

/// A name of published memory: 1 to 64 letters, digits, dots, dashes and underscores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name([u8; 8 * NAME_FIELDS]);

impl Name {
    /// Reads a name; `None` for text that is none.
    ///
    /// # Examples
    /// ```
    /// use omniheap_arbiter::frame::Name;
    /// assert_eq!(Name::new("llama-70b.v2").unwrap().as_str(), "llama-70b.v2");
    /// assert_eq!((Name::new(""), Name::new("a/b"), Name::new(&"x".repeat(65))), (None, None, None));
    /// ```
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let mut bytes = [0; 8 * NAME_FIELDS];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.is_empty() && text.bytes().all(is_plain)).then_some(Self(bytes))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        str::from_utf8(&self.0[..length]).unwrap_or_default()
    }

    fn fields(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.0.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn of(fields: &[u64; NAME_FIELDS]) -> Result<Self, FrameError> {
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        let text = str::from_utf8(&bytes).map_err(|_| FrameError::Malformed)?;
        // Zeros only behind it: a zero inside is no plain letter.
        Self::new(text.trim_end_matches('\0')).ok_or(FrameError::Malformed)
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Name({:?})", self.as_str())
    }
}

/// What published memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Digest of the bytes.
    pub digest: [u64; 4],
    /// Identity of the device; zeros where it has none.
    pub device: [u64; 2],
    /// Bytes that were published.
    pub length: u64,
    /// Bytes of memory that hold them.
    pub size: u64,
    /// Bytes of each piece of the memory but the last, which has the rest.
    pub piece: u64,
}

impl Contents {
    /// Returns the bytes of each piece, in order.
    pub fn pieces(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { size, piece, .. } = *self;
        (0..size.div_ceil(piece.max(1))).map(move |at| piece.min(size - at * piece))
    }

    /// Returns whether there are bytes, memory for them, and no more pieces than a packet has descriptors.
    fn is_possible(&self) -> bool {
        let fits = (1..=self.size).contains(&self.length) && self.piece > 0;
        fits && self.size.div_ceil(self.piece) <= PIECES
    }

    const fn fields(&self) -> [u64; CONTENTS_FIELDS] {
        let ([a, b, c, d], [e, f]) = (self.digest, self.device);
        [a, b, c, d, e, f, self.length, self.size, self.piece]
    }

    fn of(fields: &[u64; CONTENTS_FIELDS]) -> Result<Self, FrameError> {
        let [a, b, c, d, e, f, length, size, piece] = *fields;
        let contents = Self { digest: [a, b, c, d], device: [e, f], length, size, piece };
        if contents.is_possible() { Ok(contents) } else { Err(FrameError::Malformed) }
    }
}

/// A frame to the arbiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The first frame of a tenant: bytes that it holds already, after the arbiter was started anew or a connection broke. The answer says how
    /// many of them are believed.
    Hello {
        /// Bytes held.
        held: u64,
    },
    /// Asks for bytes; answered by `Grant` or `Refuse`.
    Take {
        /// The tenant's number for the request.
        request: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Says that bytes were returned to the driver. Not answered.
    Give {
        /// Bytes.
        bytes: u64,
    },
    /// Answers a `Press`, after what could be returned was given.
    Answer {
        /// The arbiter's number for the press.
        press: u64,
    },
    /// Asks for the list of tenants.
    List,
    /// Sets a tenant's quota.
    SetQuota {
        /// Process id of the tenant.
        pid: u64,
        /// Bytes.
        quota: u64,
    },
    /// Presses a tenant for everything that it can return.
    Sleep {
        /// Process id of the tenant.
        pid: u64,
    },
    /// Hands memory over to the arbiter, with a descriptor for each piece. The bytes are no longer the tenant's.
    Publish {
        /// Name under which others find it.
        name: Name,
        /// What it is.
        contents: Contents,
    },
    /// Asks for descriptors of published memory.
    Attach {
        /// Its name.
        name: Name,
    },
    /// Says that attached memory was given up. Not answered.
    Detach {
        /// The arbiter's number for the publication.
        publication: u64,
    },
    /// Ends a publication: nobody attaches it any more, and its memory is free once nobody has it attached.
    Withdraw {
        /// Its name.
        name: Name,
    },
    /// Asks for the list of publications.
    ListPublications,
}

/// One publication, as the arbiter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicationInfo {
    /// Its name.
    pub name: Name,
    /// User id of who published it.
    pub uid: u64,
    /// Bytes of its memory.
    pub size: u64,
    /// Processes that have it attached.
    pub attached: u64,
    /// 1 if it was withdrawn and stays until nobody has it attached.
    pub withdrawn: u64,
}

/// One tenant, as the arbiter sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantInfo {
    /// Process id.
    pub pid: u64,
    /// User id.
    pub uid: u64,
    /// Bytes held.
    pub held: u64,
    /// Bytes that it may hold.
    pub quota: u64,
    /// Bytes that others leave to it.
    pub reserve: u64,
    /// Weight of its share.
    pub weight: u64,
    /// Priority; lower ones are pressed first.
    pub priority: u64,
    /// Bytes of its share now.
    pub share: u64,
    /// Bytes that it owes.
    pub owed: u64,
    /// 1 if its connection is open.
    pub connected: u64,
}

/// A frame from the arbiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// Answers `Hello`.
    Limits {
        /// Bytes of the device.
        capacity: u64,
        /// Bytes that the tenant may hold.
        quota: u64,
        /// Bytes that others leave to it.
        reserve: u64,
        /// Bytes that it holds by the arbiter's books: at most those that it said.
        held: u64,
    },
    /// The bytes may be taken from the driver.
    Grant {
        /// The tenant's number for the request.
        request: u64,
    },
    /// The bytes may not be taken. Request 0 is everything that is not a `Take`.
    Refuse {
        /// The tenant's number for the request.
        request: u64,
        /// Why.
        why: Refusal,
        /// Bytes of the device that nobody holds.
        free: u64,
        /// Bytes of the tenant's share.
        share: u64,
    },
    /// Asks for bytes back.
    Press {
        /// The arbiter's number for the press.
        press: u64,
        /// Bytes.
        bytes: u64,
        /// Milliseconds until the tenant becomes a debtor.
        within_ms: u64,
    },
    /// A part of the list of tenants.
    Tenants {
        /// True if another part follows.
        more: bool,
        /// The tenants.
        tenants: Vec<TenantInfo>,
    },
    /// An order was carried out.
    Done,
    /// Answers `Attach`, with a descriptor for each piece.
    Attached {
        /// The arbiter's number for the publication.
        publication: u64,
        /// What it is.
        contents: Contents,
    },
    /// The list of publications.
    Publications {
        /// The publications; their descriptors are so few that one frame has room for all.
        publications: Vec<PublicationInfo>,
    },
}

fn frame(kind: u16, fields: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 8 * fields.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes
}

/// Returns the kind and the fields of a frame.
fn fields(bytes: &[u8]) -> Result<(u16, Vec<u64>), FrameError> {
    let (header, rest) = bytes.split_at_checked(HEADER).ok_or(FrameError::Malformed)?;
    if header[..4] != MAGIC || bytes.len() > MAX_FRAME {
        return Err(FrameError::Malformed);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let (whole, part) = rest.as_chunks::<8>();
    if !part.is_empty() {
        return Err(FrameError::Malformed);
    }
    let kind = u16::from_le_bytes([header[6], header[7]]);
    Ok((kind, whole.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()))
}

/// Reads the fields of a frame that is a name.
fn alone(fields: &[u64]) -> Result<Name, FrameError> {
    Name::of(fields.try_into().map_err(|_| FrameError::Malformed)?)
}

impl Ask {
    /// Returns the frame as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Hello { held } => frame(1, &[held]),
            Self::Take { request, bytes } => frame(2, &[request, bytes]),
            Self::Give { bytes } => frame(3, &[bytes]),
            Self::Answer { press } => frame(4, &[press]),
            Self::List => frame(5, &[]),
            Self::SetQuota { pid, quota } => frame(6, &[pid, quota]),
            Self::Sleep { pid } => frame(7, &[pid]),
            Self::Publish { name, contents } => {
                frame(8, &name.fields().chain(contents.fields()).collect::<Vec<_>>())
            }
            Self::Attach { name } => frame(9, &name.fields().collect::<Vec<_>>()),
            Self::Detach { publication } => frame(10, &[publication]),
            Self::Withdraw { name } => frame(11, &name.fields().collect::<Vec<_>>()),
            Self::ListPublications => frame(12, &[]),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`FrameError`]; nothing is read of a frame that is not whole and exact.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (kind, fields) = fields(bytes)?;
        match (kind, &*fields) {
            (1, &[held]) => Ok(Self::Hello { held }),
            (2, &[request, bytes]) => Ok(Self::Take { request, bytes }),
            (3, &[bytes]) => Ok(Self::Give { bytes }),
            (4, &[press]) => Ok(Self::Answer { press }),
            (5, &[]) => Ok(Self::List),
            (6, &[pid, quota]) => Ok(Self::SetQuota { pid, quota }),
            (7, &[pid]) => Ok(Self::Sleep { pid }),
            (8, fields) => {
                let (name, rest) = fields.split_first_chunk().ok_or(FrameError::Malformed)?;
                let contents = rest.try_into().map_err(|_| FrameError::Malformed)?;
                Ok(Self::Publish { name: Name::of(name)?, contents: Contents::of(contents)? })
            }
            (9, fields) => Ok(Self::Attach { name: alone(fields)? }),
            (10, &[publication]) => Ok(Self::Detach { publication }),
            (11, fields) => Ok(Self::Withdraw { name: alone(fields)? }),
            (12, &[]) => Ok(Self::ListPublications),
            _ => Err(FrameError::Malformed),
        }
    }
}

impl Tell {
    /// Returns the frame as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Limits { capacity, quota, reserve, held } => {
                frame(101, &[*capacity, *quota, *reserve, *held])
            }
            Self::Grant { request } => frame(102, &[*request]),
            Self::Refuse { request, why, free, share } => {
                frame(103, &[*request, *why as u64, *free, *share])
            }
            Self::Press { press, bytes, within_ms } => frame(104, &[*press, *bytes, *within_ms]),
            Self::Tenants { more, tenants } => {
                let mut fields = vec![u64::from(*more)];
                tenants.iter().for_each(|tenant| fields.extend(tenant.fields()));
                frame(105, &fields)
            }
            Self::Done => frame(106, &[]),
            Self::Attached { publication, contents } => {
                frame(107, &[&[*publication][..], &contents.fields()].concat())
            }
            Self::Publications { publications } => {
                let fields = publications.iter().flat_map(PublicationInfo::fields);
                frame(108, &fields.collect::<Vec<_>>())
            }
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`FrameError`]; nothing is read of a frame that is not whole and exact.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (kind, fields) = fields(bytes)?;
        match (kind, &*fields) {
            (101, &[capacity, quota, reserve, held]) => {
                Ok(Self::Limits { capacity, quota, reserve, held })
            }
            (102, &[request]) => Ok(Self::Grant { request }),
            (103, &[request, why, free, share]) => {
                Ok(Self::Refuse { request, why: Refusal::of(why)?, free, share })
            }
            (104, &[press, bytes, within_ms]) => Ok(Self::Press { press, bytes, within_ms }),
            (105, [more @ (0 | 1), rest @ ..]) => {
                let (tenants, part) = rest.as_chunks::<TENANT_FIELDS>();
                if !part.is_empty() || tenants.len() > LISTED {
                    return Err(FrameError::Malformed);
                }
                let tenants = tenants.iter().map(TenantInfo::of).collect();
                Ok(Self::Tenants { more: *more == 1, tenants })
            }
            (106, &[]) => Ok(Self::Done),
            (107, [publication, contents @ ..]) => {
                let contents = contents.try_into().map_err(|_| FrameError::Malformed)?;
                let contents = Contents::of(contents)?;
                Ok(Self::Attached { publication: *publication, contents })
            }
            (108, fields) => {
                let (publications, part) = fields.as_chunks::<PUBLICATION_FIELDS>();
                if !part.is_empty() {
                    return Err(FrameError::Malformed);
                }
                let publications = publications.iter().map(PublicationInfo::of);
                Ok(Self::Publications { publications: publications.collect::<Result<_, _>>()? })
            }
            _ => Err(FrameError::Malformed),
        }
    }
}

impl PublicationInfo {
    fn fields(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.name.fields().chain([self.uid, self.size, self.attached, self.withdrawn])
    }

    fn of(fields: &[u64; PUBLICATION_FIELDS]) -> Result<Self, FrameError> {
        let (name, rest) = fields.split_first_chunk().ok_or(FrameError::Malformed)?;
        let &[uid, size, attached, withdrawn] = rest else { return Err(FrameError::Malformed) };
        Ok(Self { name: Name::of(name)?, uid, size, attached, withdrawn })
    }
}

impl TenantInfo {
    const fn fields(&self) -> [u64; TENANT_FIELDS] {
        [
            self.pid,
            self.uid,
            self.held,
            self.quota,
            self.reserve,
            self.weight,
            self.priority,
            self.share,
            self.owed,
            self.connected,
        ]
    }

    const fn of(fields: &[u64; TENANT_FIELDS]) -> Self {
        let [pid, uid, held, quota, reserve, weight, priority, share, owed, connected] = *fields;
        Self { pid, uid, held, quota, reserve, weight, priority, share, owed, connected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let name = Name::new("llama-70b").expect("a name");
        let contents =
            Contents { digest: [1, 2, 3, 4], device: [5, 6], length: 7, size: 130, piece: 64 };
        let publication = PublicationInfo { name, uid: 1, size: 2, attached: 3, withdrawn: 1 };
        assert_eq!(contents.pieces().collect::<Vec<_>>(), [64, 64, 2]);
        let asks = [
            Ask::Publish { name, contents },
            Ask::Attach { name },
            Ask::Detach { publication: 8 },
            Ask::Withdraw { name },
            Ask::ListPublications,
            Ask::Hello { held: 1 },
            Ask::Take { request: 2, bytes: u64::MAX },
            Ask::Give { bytes: 3 },
            Ask::Answer { press: 4 },
            Ask::List,
            Ask::SetQuota { pid: 5, quota: 6 },
            Ask::Sleep { pid: 7 },
        ];
        for ask in asks {
            assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        }
        let tenants = vec![TenantInfo { pid: 9, share: 8, ..TenantInfo::default() }; LISTED];
        let mut tells = vec![
            Tell::Limits { capacity: 1, quota: 2, reserve: 3, held: 4 },
            Tell::Grant { request: 4 },
            Tell::Press { press: 5, bytes: 6, within_ms: 7 },
            Tell::Tenants { more: true, tenants },
            Tell::Done,
            Tell::Attached { publication: 9, contents },
            Tell::Publications { publications: vec![publication; 128] },
        ];
        let refuse = |why| Tell::Refuse { request: 1, why, free: 2, share: 3 };
        tells.extend(Refusal::ALL.map(refuse));
        for tell in tells {
            let bytes = tell.encode();
            assert!(bytes.len() <= MAX_FRAME);
            assert_eq!(Tell::decode(&bytes), Ok(tell));
        }
    }

    #[test]
    fn contents_that_cannot_be_are_refused() {
        let good = Contents { digest: [0; 4], device: [0; 2], length: 64, size: 64, piece: 1 };
        let name = Name::new("n").expect("a name");
        let read = |contents| Ask::decode(&Ask::Publish { name, contents }.encode());
        assert!(read(good).is_ok());
        for bad in [
            Contents { length: 0, ..good },
            Contents { length: 65, ..good },
            Contents { size: 0, length: 0, ..good },
            Contents { piece: 0, ..good },
            Contents { size: 65, ..good },
            Contents { size: u64::MAX, ..good },
        ] {
            assert_eq!(read(bad), Err(FrameError::Malformed), "{bad:?}");
        }
        let mut inside = Ask::Attach { name }.encode();
        inside[HEADER + 2] = b'x';
        assert_eq!(Ask::decode(&inside), Err(FrameError::Malformed), "a zero inside a name");
    }

    #[test]
    fn every_cut_and_every_longer_frame_is_refused() {
        let whole = Ask::Take { request: 1, bytes: 2 }.encode();
        for end in 0..whole.len() {
            assert_eq!(Ask::decode(&whole[..end]), Err(FrameError::Malformed), "{end}");
        }
        let longer = [&*whole, &[0; 8]].concat();
        assert_eq!(Ask::decode(&longer), Err(FrameError::Malformed));
        let mut other = whole;
        other[4] = 9;
        assert_eq!(Ask::decode(&other), Err(FrameError::Version(9)));
        other[4] = 1;
        let older = Ask::decode(&other).expect_err("its limits had three fields").to_string();
        assert_eq!(older, "protocol version 1, not 2; use the same omniheap on both sides");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_a_frame_that_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u16..110) {
            let mut whole = frame(kind, &[]);
            whole.extend(bytes);
            if let Ok(ask) = Ask::decode(&whole) {
                prop_assert_eq!(ask.encode(), whole.clone());
            }
            if let Ok(tell) = Tell::decode(&whole) {
                prop_assert_eq!(tell.encode(), whole);
            }
        }
    }
}
