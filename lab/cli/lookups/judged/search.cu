// The first row that is not below, by halving. The table's first numbers rise.
unsigned int low = 0u, high = rows;
while (low < high) {
    const unsigned int middle = (low + high) / 2u;
    if (TABLE[middle].x < x) {
        low = middle + 1u;
    } else {
        high = middle;
    }
}
value = (float)low;
