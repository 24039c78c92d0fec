/// The one export macro: everything else in the library has hidden visibility.
#pragma once

#if defined(HYALITE_STATIC)
#define HYALITE_API
#else
#define HYALITE_API __attribute__((visibility("default")))
#endif
