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
/// Words of a name.
const NAME_FIELDS: usize = 8;

/// Descriptors of one publication.
pub const PIECES: u64 = 64;

/// Part of a frame: whole numbers of eight bytes, one behind the other.
trait Wire: Sized {
    fn put(&self, fields: &mut Vec<u64>);
    /// Takes the part from the front of the fields.
    fn take(fields: &mut &[u64]) -> Result<Self, FrameError>;
}

impl Wire for u64 {
    fn put(&self, fields: &mut Vec<u64>) {
        fields.push(*self);
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        fields.split_off_first().copied().ok_or(FrameError::Malformed)
    }
}

impl Wire for bool {
    fn put(&self, fields: &mut Vec<u64>) {
        fields.push((*self).into());
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        let field = u64::take(fields)?;
        if field <= 1 { Ok(field == 1) } else { Err(FrameError::Malformed) }
    }
}

impl<const N: usize> Wire for [u64; N] {
    fn put(&self, fields: &mut Vec<u64>) {
        fields.extend(self);
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        let (first, rest) = fields.split_first_chunk().ok_or(FrameError::Malformed)?;
        *fields = rest;
        Ok(*first)
    }
}

/// A list reaches to the end of its frame.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, fields: &mut Vec<u64>) {
        self.iter().for_each(|one| one.put(fields));
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        let mut all = Self::new();
        while !fields.is_empty() {
            all.push(T::take(fields)?);
        }
        if all.len() <= LISTED { Ok(all) } else { Err(FrameError::Malformed) }
    }
}

/// Writes and reads a struct's fields in order.
macro_rules! wire {
    ($name:ident { $($field:ident),* } $(if $check:path)?) => {
        impl Wire for $name {
            fn put(&self, fields: &mut Vec<u64>) {
                $(self.$field.put(fields);)*
            }

            fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
                let read = Self { $($field: Wire::take(fields)?),* };
                $(if !$check(&read) {
                    return Err(FrameError::Malformed);
                })?
                Ok(read)
            }
        }
    };
}

/// Declares the frames of one direction, each behind its kind, and how they are written and read.
macro_rules! frames {
    ($(#[$about:meta])* pub enum $name:ident {
        $($(#[$said:meta])* $kind:literal => $frame:ident $({ $($(#[$told:meta])* $field:ident: $type:ty,)* })?,)*
    }) => {
        $(#[$about])*
        pub enum $name { $($(#[$said])* $frame $({ $($(#[$told])* $field: $type,)* })?,)* }

        impl $name {
            /// Returns the frame as bytes.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut fields = Vec::new();
                let kind = match self {
                    $(Self::$frame $({ $($field),* })? => {
                        $($($field.put(&mut fields);)*)?
                        $kind
                    })*
                };
                frame(kind, &fields)
            }

            /// Reads a frame.
            ///
            /// # Errors
            /// [`FrameError`]; nothing is read of a frame that is not whole and exact.
            pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
                let (kind, fields) = fields(bytes)?;
                let rest = &mut &*fields;
                let read = match kind {
                    $($kind => Self::$frame $({ $($field: Wire::take(rest)?),* })?,)*
                    _ => return Err(FrameError::Malformed),
                };
                if rest.is_empty() { Ok(read) } else { Err(FrameError::Malformed) }
            }
        }
    };
}

/// Reason why a frame was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The sender speaks another version.
    #[error("protocol version {0}, not {VERSION}; use the same omniheap on both sides")]
    Version(u16),
    /// Not a frame of this protocol.
    #[error("not a frame of this protocol")]
    Malformed,
}

/// Reason why a request was refused.
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
}

impl Wire for Refusal {
    fn put(&self, fields: &mut Vec<u64>) {
        fields.push(*self as u64);
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        let code = u64::take(fields)?;
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
}

impl Wire for Name {
    fn put(&self, fields: &mut Vec<u64>) {
        fields.extend(self.0.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
    }

    fn take(fields: &mut &[u64]) -> Result<Self, FrameError> {
        let bytes = <[u64; NAME_FIELDS]>::take(fields)?.map(u64::to_le_bytes);
        let text = str::from_utf8(bytes.as_flattened()).map_err(|_| FrameError::Malformed)?;
        // Zeros only behind it: a zero inside is no plain letter.
        Self::new(text.trim_end_matches('\0')).ok_or(FrameError::Malformed)
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Name({:?})", self.as_str())
    }
}

/// Description of published memory.
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
}

wire!(Contents { digest, device, length, size, piece } if Contents::is_possible);

frames! {
    /// A frame to the arbiter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Ask {
        /// The first frame of a tenant: bytes that it holds already, after the arbiter was started anew or a connection broke. The answer says how
        /// many of them are believed.
        1 => Hello {
            /// Bytes held.
            held: u64,
        },
        /// Asks for bytes; answered by `Grant` or `Refuse`.
        2 => Take {
            /// The tenant's number for the request.
            request: u64,
            /// Bytes.
            bytes: u64,
        },
        /// Says that bytes were returned to the driver. Not answered.
        3 => Give {
            /// Bytes.
            bytes: u64,
        },
        /// Answers a `Press`, after what could be returned was given.
        4 => Answer {
            /// The arbiter's number for the press.
            press: u64,
        },
        /// Asks for the list of tenants.
        5 => List,
        /// Sets a tenant's quota.
        6 => SetQuota {
            /// Process id of the tenant.
            pid: u64,
            /// Bytes.
            quota: u64,
        },
        /// Presses a tenant for everything that it can return.
        7 => Sleep {
            /// Process id of the tenant.
            pid: u64,
        },
        /// Hands memory over to the arbiter, with a descriptor for each piece. The bytes are no longer the tenant's.
        8 => Publish {
            /// Name under which others find it.
            name: Name,
            /// Description of the memory.
            contents: Contents,
        },
        /// Asks for descriptors of published memory.
        9 => Attach {
            /// Its name.
            name: Name,
        },
        /// Says that attached memory was given up. Not answered.
        10 => Detach {
            /// The arbiter's number for the publication.
            publication: u64,
        },
        /// Ends a publication: no process attaches it any more, and its memory is free once none has it attached.
        11 => Withdraw {
            /// Its name.
            name: Name,
        },
        /// Asks for the list of publications.
        12 => ListPublications,
    }
}

/// One publication, as the arbiter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicationInfo {
    /// Its name.
    pub name: Name,
    /// User id of the publisher.
    pub uid: u64,
    /// Bytes of its memory.
    pub size: u64,
    /// Processes that have it attached.
    pub attached: u64,
    /// 1 if it was withdrawn and stays until no process has it attached.
    pub withdrawn: u64,
}

wire!(PublicationInfo { name, uid, size, attached, withdrawn });

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

wire!(TenantInfo { pid, uid, held, quota, reserve, weight, priority, share, owed, connected });

frames! {
    /// A frame from the arbiter.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Tell {
        /// Answers `Hello`.
        101 => Limits {
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
        102 => Grant {
            /// The tenant's number for the request.
            request: u64,
        },
        /// The bytes may not be taken. Request 0 is everything that is not a `Take`.
        103 => Refuse {
            /// The tenant's number for the request.
            request: u64,
            /// The reason.
            why: Refusal,
            /// Bytes of the device that no tenant holds.
            free: u64,
            /// Bytes of the tenant's share.
            share: u64,
        },
        /// Asks for bytes back.
        104 => Press {
            /// The arbiter's number for the press.
            press: u64,
            /// Bytes.
            bytes: u64,
            /// Milliseconds until the tenant becomes a debtor.
            within_ms: u64,
        },
        /// A part of the list of tenants.
        105 => Tenants {
            /// True if another part follows.
            more: bool,
            /// The tenants.
            tenants: Vec<TenantInfo>,
        },
        /// An order was carried out.
        106 => Done,
        /// Answers `Attach`, with a descriptor for each piece.
        107 => Attached {
            /// The arbiter's number for the publication.
            publication: u64,
            /// Description of the memory.
            contents: Contents,
        },
        /// The list of publications.
        108 => Publications {
            /// The publications; their descriptors are so few that one frame has room for all.
            publications: Vec<PublicationInfo>,
        },
    }
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
